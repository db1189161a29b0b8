package admin

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Reload is what came of an attempt to run another configuration.
type Reload struct {
	Time    time.Time `json:"time"`
	Trigger string    `json:"trigger"` // request, signal or file
	OK      bool      `json:"ok"`      // the file is what runs now
	Changed []string  `json:"changed"` // what was begun, restarted or ended
	Waits   []string  `json:"waits"`   // settings that wait for a restart of the process
	Faults  []string  `json:"faults"`  // why the file was not taken

	// Left says where entries of ours stay since this or an earlier reload,
	// that nothing looks after any more.
	Left []string `json:"left,omitempty"`
}

// reload has the configuration read again.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if s.opts.Reload == nil {
		problem(w, http.StatusNotFound, "no such path, or not by this method")
		return
	}
	result, err := s.opts.Reload(r.Context())
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		problem(w, http.StatusGatewayTimeout, "the bridge is busy with another reload, or ends")
	case err != nil:
		problem(w, http.StatusInternalServerError, err.Error())
	case !result.OK:
		reply(w, http.StatusUnprocessableEntity, result)
	default:
		reply(w, http.StatusOK, result)
	}
}
