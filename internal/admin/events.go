package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// maxEvents is how many events of each kind are kept. The limit is for each kind, so that
// frequent events do not replace events of another kind.
const maxEvents = 200

// Event is a bridge.Event and its number. Numbers increase with time.
type Event struct {
	Number int64 `json:"number"`
	bridge.Event
}

// Events keeps the latest events of each kind. It is safe for concurrent use. The zero
// value is ready for use.
type Events struct {
	mu    sync.Mutex
	last  int64
	kinds map[bridge.EventKind][]Event
}

// Add adds an event. If there are already maxEvents of its kind, it removes the oldest.
func (e *Events) Add(event bridge.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kinds == nil {
		e.kinds = make(map[bridge.EventKind][]Event)
	}
	e.last++
	kept := e.kinds[event.Kind]
	if len(kept) == maxEvents {
		kept = slices.Delete(kept, 0, 1)
	}
	e.kinds[event.Kind] = append(kept, Event{Number: e.last, Event: event})
}

// List returns the events with a higher number than after, in order.
func (e *Events) List(after int64) []Event {
	list := []Event{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, kept := range e.kinds {
		for _, event := range kept {
			if event.Number > after {
				list = append(list, event)
			}
		}
	}
	slices.SortFunc(list, func(a, b Event) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

func (s *Server) getEvents(w http.ResponseWriter, r *http.Request) {
	after := int64(0)
	if text := r.URL.Query().Get("after"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			replyProblem(w, http.StatusBadRequest, "after: must be the number of an event")
			return
		}
		after = n
	}
	list := s.opts.Events.List(after)
	reply(w, http.StatusOK, Page[Event]{Items: list, Total: len(list)})
}

// of returns the events about some subjects, in order.
func (e *Events) of(subjects map[string]bool) []Event {
	return slices.DeleteFunc(e.List(0), func(event Event) bool { return !subjects[event.Subject] })
}
