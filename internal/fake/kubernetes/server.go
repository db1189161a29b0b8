// Package kubernetes is a Kubernetes API server for tests. It stores objects as JSON,
// lists them in pages, and sends changes to watches. Changes depend on the version of
// an object, as with a single field manager. The server knows no kinds, validates
// nothing, and rejects only what a test requests.
package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Server is an API server. Make it by NewServer.
type Server struct {
	mu       sync.Mutex // guards the fields below
	version  int
	first    int // the oldest version that a watch may begin after
	objects  map[string]map[string]object
	history  []event
	moved    chan struct{} // closed at each change
	refusals map[string]refusal
	requests int
	lists    int
	absent   map[string]bool
}

type object map[string]any

type event struct {
	version  int
	resource string
	kind     string
	object   object
}

type refusal struct {
	code   int
	reason string
}

// NewServer returns a server without objects.
func NewServer() *Server {
	return &Server{
		version: 1, objects: make(map[string]map[string]object), moved: make(chan struct{}),
		refusals: make(map[string]refusal), absent: make(map[string]bool),
	}
}

// Kubeconfig returns a kubeconfig file for a server at a URL.
func Kubeconfig(url string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: secret}}]}`, url)
}

// Put stores an object of a resource, such as services. It replaces an object of the same name.
func (s *Server) Put(resource string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", resource, err)
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return fmt.Errorf("%s: %w", resource, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "MODIFIED"
	if s.objects[resource] == nil {
		s.objects[resource] = make(map[string]object)
	}
	if s.objects[resource][o.key()] == nil {
		kind = "ADDED"
	}
	s.happen(resource, kind, o)
	s.objects[resource][o.key()] = o
	return nil
}

// Delete deletes an object, if it exists.
func (s *Server) Delete(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[resource][namespace+"/"+name]
	if !ok {
		return
	}
	delete(s.objects[resource], namespace+"/"+name)
	gone := maps.Clone(o)
	gone["metadata"] = maps.Clone(o.meta())
	s.happen(resource, "DELETED", gone)
}

// happen sets the next version of a changed object and notifies watches.
func (s *Server) happen(resource, kind string, o object) {
	s.version++
	o.meta()["resourceVersion"] = strconv.Itoa(s.version)
	s.history = append(s.history, event{s.version, resource, kind, o})
	close(s.moved)
	s.moved = make(chan struct{})
}

// Compact drops the history: a watch that missed changes must list again.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.first = nil, s.version
}

// A Snapshot is the stored state of a server.
type Snapshot struct {
	version int
	objects map[string]map[string]object
}

// Snapshot returns the stored state.
func (s *Server) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{s.version, copied(s.objects)}
}

// Restore restarts the server with a snapshot. Versions continue from there, and watches at later
// versions must list again.
func (s *Server) Restore(snap Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.objects, s.history, s.first = snap.version, copied(snap.objects), nil, snap.version
	close(s.moved)
	s.moved = make(chan struct{})
}

func copied(objects map[string]map[string]object) map[string]map[string]object {
	all := make(map[string]map[string]object, len(objects))
	for resource, named := range objects {
		all[resource] = maps.Clone(named)
	}
	return all
}

// Refuse rejects requests for a resource in a namespace (empty: in all) with a status and a reason,
// such as 403 and Forbidden. It ends the watches of the resource. Status 0 ends the rejection.
func (s *Server) Refuse(resource, namespace string, code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals[namespace+"/"+resource] = refusal{code, reason}
	close(s.moved)
	s.moved = make(chan struct{})
}

// Forget makes a resource unknown, as without its definition.
func (s *Server) Forget(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.absent[resource] = true
}

// Define makes a resource known again.
func (s *Server) Define(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.absent, resource)
}

// Requests returns the number of answered requests plus that of sent changes.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Lists returns the number of returned pages of lists.
func (s *Server) Lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func (o object) meta() map[string]any {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		m = make(map[string]any)
		o["metadata"] = m
	}
	return m
}

func (o object) namespace() string { n, _ := o.meta()["namespace"].(string); return n }
func (o object) name() string      { n, _ := o.meta()["name"].(string); return n }
func (o object) key() string       { return o.namespace() + "/" + o.name() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, ok := parse(r)
	if !ok {
		s.fail(w, refusal{http.StatusNotFound, "NotFound"})
		return
	}
	s.mu.Lock()
	s.requests++
	refused, absent := s.refused(q), s.absent[q.resource]
	s.mu.Unlock()
	switch {
	case refused.code != 0:
		s.fail(w, refused)
	case absent:
		s.fail(w, refusal{http.StatusNotFound, "NotFound"})
	case q.name != "" || r.Method != http.MethodGet:
		s.one(w, r, q)
	case q.watch && r.URL.Query().Get("sendInitialEvents") != "": // not supported, so that clients list
		s.fail(w, refusal{http.StatusUnprocessableEntity, "Invalid"})
	case q.watch:
		s.watch(w, r, q)
	default:
		s.list(w, q)
	}
}

type query struct {
	resource, namespace, group string
	name                       string // empty: all
	partial                    bool   // only metadata
	watch                      bool
	after                      int
	limit                      int
	from                       string // the key before a page
}

// parse reads /api/v1[/namespaces/N]/R[/NAME] and /apis/G/V[/namespaces/N]/R[/NAME].
func parse(r *http.Request) (q query, ok bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		q.group, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		q.group, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		return q, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		q.namespace, parts = parts[1], parts[2:]
	}
	values := r.URL.Query()
	q.resource, q.watch, q.from = parts[0], values.Get("watch") != "", values.Get("continue")
	q.after, _ = strconv.Atoi(values.Get("resourceVersion"))
	q.limit, _ = strconv.Atoi(values.Get("limit"))
	q.partial = strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	if len(parts) == 2 { //nolint:mnd // the resource and the name
		q.name = parts[1]
	}
	return q, len(parts) <= 2 //nolint:mnd // likewise
}

func (s *Server) refused(q query) refusal {
	if r := s.refusals[q.namespace+"/"+q.resource]; r.code != 0 {
		return r
	}
	return s.refusals["/"+q.resource]
}

func (*Server) fail(w http.ResponseWriter, r refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.code)
	_ = json.NewEncoder(w).Encode(status(r))
}

func status(r refusal) map[string]any {
	return map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": r.code, "reason": r.reason,
		"message": "the test refuses it: " + r.reason,
	}
}

func (s *Server) list(w http.ResponseWriter, q query) {
	s.mu.Lock()
	s.lists++
	meta := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	items := []object{}
	all := s.objects[q.resource]
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key <= q.from || q.namespace != "" && all[key].namespace() != q.namespace {
			continue
		}
		if q.limit > 0 && len(items) == q.limit {
			meta["continue"] = items[len(items)-1].key()
			break
		}
		items = append(items, q.shown(all[key]))
	}
	kind, group := listKind(q.resource), q.group
	if q.partial {
		kind, group = partialKind+"List", partialGroup
	}
	text, err := json.Marshal(map[string]any{"kind": kind, "apiVersion": group, "metadata": meta, "items": items})
	s.mu.Unlock()
	if err != nil {
		panic(err) // the object was decoded from JSON
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// The type of an object if only metadata is requested.
const (
	partialKind  = "PartialObjectMetadata"
	partialGroup = "meta.k8s.io/v1"
)

// shown returns the requested part of an object.
func (q query) shown(o object) object {
	if !q.partial {
		return o
	}
	return object{"kind": partialKind, "apiVersion": partialGroup, "metadata": o.meta()}
}

func listKind(resource string) string {
	return map[string]string{
		"services": "ServiceList", "pods": "PodList", "nodes": "NodeList", "endpointslices": "EndpointSliceList",
		"serviceentries": "ServiceEntryList", "workloadentries": "WorkloadEntryList", "destinationrules": "DestinationRuleList",
	}[resource]
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, q query) {
	out := json.NewEncoder(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	after := q.after
	for {
		n := s.since(q, after)
		after = n.version
		switch {
		case n.refused:
			return
		case n.forgotten:
			_ = out.Encode(map[string]any{"type": "ERROR", "object": status(refusal{http.StatusGone, "Expired"})})
			return
		}
		for _, text := range n.texts {
			if _, err := w.Write(append(text, '\n')); err != nil {
				return
			}
		}
		_ = flush.Flush()
		select {
		case <-n.moved:
		case <-r.Context().Done():
			return
		}
	}
}

// news are the changes that a watch has to send.
type news struct {
	version            int
	texts              [][]byte
	refused, forgotten bool
	moved              <-chan struct{} // closed when there is more
}

func (s *Server) since(q query, after int) news {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := news{version: s.version, refused: s.refused(q).code != 0, forgotten: after < s.first || after > s.version, moved: s.moved}
	for _, e := range s.history {
		if e.version <= after || e.resource != q.resource || q.namespace != "" && e.object.namespace() != q.namespace {
			continue
		}
		text, err := json.Marshal(map[string]any{"type": e.kind, "object": q.shown(e.object)})
		if err != nil {
			panic(err) // the object was decoded from JSON
		}
		n.texts = append(n.texts, text)
		s.requests++
	}
	return n
}
