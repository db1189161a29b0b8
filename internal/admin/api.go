package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/redact"
)

// Admin returns the handler of the API. It refuses requests without the token or, if the
// API has none, requests to a host that is not loopback. It also refuses requests that
// pages of another origin make.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, s.Document(r.Context()))
	})
	mux.HandleFunc("GET /api/v1/services", s.getServices)
	mux.HandleFunc("GET /api/v1/services/{name}", s.getService)
	mux.HandleFunc("GET /api/v1/holds", func(w http.ResponseWriter, r *http.Request) {
		list := holdsOf(s.statuses(r.Context()))
		reply(w, http.StatusOK, Page[Hold]{Items: list, Total: len(list)})
	})
	mux.HandleFunc("GET /api/v1/conflicts", func(w http.ResponseWriter, r *http.Request) {
		list := conflictsOf(s.statuses(r.Context()))
		reply(w, http.StatusOK, Page[Conflict]{Items: list, Total: len(list)})
	})
	mux.HandleFunc("GET /api/v1/events", s.getEvents)
	mux.HandleFunc("POST /api/v1/holds/{id}/approve", s.decide(decisionKind{
		action: "approve", result: "approved", effect: "the deletions proceed", decide: Loop.Approve,
	}))
	mux.HandleFunc("POST /api/v1/holds/{id}/deny", s.decide(decisionKind{
		action: "deny", result: "denied", effect: "each entry stays until it is claimed again", decide: Loop.Deny,
	}))
	mux.HandleFunc("POST /api/v1/reload", s.reload)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		replyProblem(w, http.StatusNotFound, noSuchPath)
	})
	checkCaller := checkHost
	if s.opts.Secure != nil {
		checkCaller = s.opts.Secure.checkToken
	}
	return withChecks(mux, checkCaller, checkOrigin, s.checkOwner, checkJSON)
}

// noSuchPath answers requests that no handler matches.
const noSuchPath = "no such path, or the method is not allowed"

// Document returns the present state of everything. If a loop does not answer within two
// seconds, its last error is that it does not answer.
func (rep *reporter) Document(ctx context.Context) Document {
	d := Document{
		Version: rep.opts.Version, Owner: rep.current().owner, Started: rep.started, Time: time.Now(),
		Sources: make([]Source, 0, len(rep.current().inputs)), Targets: []TargetStatus{},
	}
	if rep.opts.Replicas != nil {
		d.Replicas = rep.opts.Replicas()
	}
	for _, in := range rep.current().inputs {
		d.Sources = append(d.Sources, sourceOf(in))
	}
	for _, t := range rep.current().targets {
		d.Targets = append(d.Targets, TargetStatus{Name: t.Name, Kind: t.Kind, TargetState: t.State()})
	}
	if rep.opts.Reloaded != nil {
		d.Reload = rep.opts.Reloaded()
	}
	d.Loops = rep.statuses(ctx)
	d.Conditions = rep.conditions(d.Loops, d.Replicas)
	d.InSync = !slices.ContainsFunc(d.Conditions, Condition.Lasts)
	d.Ready = !slices.ContainsFunc(rep.ready(ctx), func(c check) bool { return c.problem != "" })
	return d
}

// The number of items in a page: if the request has no limit, and at most.
const (
	pageSize    = 100
	maxPageSize = 1000
)

func (s *Server) getServices(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit := pageSize
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPageSize {
			replyProblem(w, http.StatusBadRequest, "limit: must be a number from 1 to "+strconv.Itoa(maxPageSize))
			return
		}
		limit = n
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("continue"))
	if err != nil {
		replyProblem(w, http.StatusBadRequest, "continue: must be the value that the previous page returned")
		return
	}
	reply(w, http.StatusOK, s.page(r.Context(), string(after), limit))
}

// page returns at most limit services after a cursor, in the order of their cursors.
func (rep *reporter) page(ctx context.Context, after string, limit int) Page[Service] {
	all := servicesOf(rep.current().owner, rep.statuses(ctx))
	i := sort.Search(len(all), func(i int) bool { return all[i].cursor() > after })
	page := Page[Service]{Items: all[i:min(i+limit, len(all))], Total: len(all)}
	if i+limit < len(all) {
		page.Continue = base64.RawURLEncoding.EncodeToString([]byte(all[i+limit-1].cursor()))
	}
	return page
}

func (s *Server) getService(w http.ResponseWriter, r *http.Request) {
	why := s.Why(r.Context(), r.PathValue("name"))
	if why.empty() {
		replyProblem(w, http.StatusNotFound, s.explainUnknownService(r.Context(), why))
		return
	}
	reply(w, http.StatusOK, why)
}

// explainUnknownService returns the answer to a query that matches nothing: similar names,
// and sources that are not read in full.
func (rep *reporter) explainUnknownService(ctx context.Context, w Why) string {
	text := "no source reports this service, and no entry of this owner has this name"
	if suggestion := didYouMean(rep.similarServices(ctx, w.Query)); suggestion != "" {
		text += suggestion
	} else {
		text += "; use its name in the mesh (fqdn:port), its interface, its service key or the address of an endpoint"
	}
	var unread []string
	for _, c := range w.Conditions {
		if slices.Contains([]ConditionName{Pending, Stale, Partial}, c.Name) {
			unread = append(unread, c.Registry+" "+string(c.Name))
		}
	}
	if len(unread) > 0 {
		text += "; it may be in a part that is not read, see xds-bridge status: " + strings.Join(unread, ", ")
	}
	return text
}

// reply writes a document as JSON, with the secrets in its texts redacted. The encoder
// escapes <, > and &, so that a name from outside never becomes markup.
func reply(w http.ResponseWriter, code int, document any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	_ = enc.Encode(document)
	_, _ = w.Write(redact.JSON(b.Bytes()))
}

// replyProblem writes an error.
func replyProblem(w http.ResponseWriter, code int, text string) { reply(w, code, Problem{Error: text}) }

// Reload is the result of an attempt to run another configuration.
type Reload struct {
	Time    time.Time `json:"time"`
	Trigger string    `json:"trigger"` // request, signal or file
	OK      bool      `json:"ok"`      // the file is applied
	Changed []string  `json:"changed"` // components that were started, restarted or stopped
	Waits   []string  `json:"waits"`   // settings that require a restart of the process
	Errors  []string  `json:"errors"`  // why the file was not applied

	// Left are the places where this or an earlier reload left entries of this owner that no
	// bridge maintains any longer.
	Left []string `json:"left,omitempty"`
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if s.opts.Reload == nil {
		replyProblem(w, http.StatusNotFound, noSuchPath)
		return
	}
	result, err := s.opts.Reload(r.Context())
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		replyProblem(w, http.StatusGatewayTimeout, "the bridge is busy with another reload, or is stopping")
	case err != nil:
		replyProblem(w, http.StatusInternalServerError, err.Error())
	case !result.OK:
		reply(w, http.StatusUnprocessableEntity, result)
	default:
		reply(w, http.StatusOK, result)
	}
}
