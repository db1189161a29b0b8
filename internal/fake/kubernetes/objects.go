package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
)

// one handles a request to get, create, apply, merge or delete one object.
func (s *Server) one(w http.ResponseWriter, r *http.Request, q query) {
	var sent object
	if r.Method != http.MethodGet {
		_ = json.NewDecoder(r.Body).Decode(&sent) // empty if a deletion has no conditions
	}
	if q.name == "" {
		q.name = sent.name()
	}
	s.mu.Lock()
	now := s.objects[q.resource][q.namespace+"/"+q.name]
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodDelete:
		s.remove(w, q, sent, now)
	case r.Method == http.MethodPost && now != nil:
		s.failOne(w, q, refusal{http.StatusConflict, "AlreadyExists"})
	case r.Method == http.MethodPost:
		s.store(w, r, q, sent)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		s.apply(w, r, q, sent)
	case now == nil:
		s.failOne(w, q, refusal{http.StatusNotFound, "NotFound"})
	case r.Method == http.MethodPatch:
		s.store(w, r, q, merged(now, sent))
	default:
		answer(w, http.StatusOK, q.shown(now))
	}
}

// apply stores an object if its version is the stored one. Version 0 requires that there is no
// stored object.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, q query, sent object) {
	s.mu.Lock()
	now := s.objects[q.resource][q.namespace+"/"+q.name]
	s.mu.Unlock()
	version, _ := sent.meta()["resourceVersion"].(string)
	switch {
	case version == "0" && now != nil:
		s.failOne(w, q, refusal{http.StatusUnprocessableEntity, "Invalid"}, map[string]any{"field": "metadata.resourceVersion"})
	case version != "0" && version != "" && (now == nil || now.meta()["resourceVersion"] != version):
		s.failOne(w, q, refusal{http.StatusConflict, "Conflict"})
	default:
		if now != nil {
			sent.meta()["uid"] = now.meta()["uid"]
		}
		s.store(w, r, q, sent)
	}
}

// store stores an object, unless the request is a dry run, and returns it.
func (s *Server) store(w http.ResponseWriter, r *http.Request, q query, o object) {
	o.meta()["name"], o.meta()["namespace"] = q.name, q.namespace
	if o.meta()["uid"] == nil {
		o.meta()["uid"] = "uid-" + strconv.Itoa(s.Requests())
	}
	if r.URL.Query().Get("dryRun") == "" {
		if err := s.Put(q.resource, o); err != nil {
			panic(err) // the object was decoded from JSON
		}
		s.mu.Lock()
		o = s.objects[q.resource][o.key()]
		s.mu.Unlock()
	}
	answer(w, http.StatusOK, o)
}

// remove deletes an object if its conditions hold.
func (s *Server) remove(w http.ResponseWriter, q query, conditions, now object) {
	if now == nil {
		s.failOne(w, q, refusal{http.StatusNotFound, "NotFound"})
		return
	}
	only, _ := conditions["preconditions"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion"} {
		if v, there := only[field]; there && v != now.meta()[field] {
			s.failOne(w, q, refusal{http.StatusConflict, "Conflict"})
			return
		}
	}
	s.Delete(q.resource, q.namespace, q.name)
	answer(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

// merged returns an object with a merge patch applied.
func merged(o, patch object) object {
	out := maps.Clone(o)
	for k, v := range patch {
		inner, isObject := v.(map[string]any)
		before, _ := o[k].(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case isObject:
			out[k] = map[string]any(merged(before, inner))
			if before == nil {
				out[k] = map[string]any(merged(object{}, inner))
			}
		default:
			out[k] = v
		}
	}
	return out
}

func answer(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Errorf("encode answer: %w", err)) // the object was decoded from JSON
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}

// failOne rejects a request for an object, with the name of the object.
func (*Server) failOne(w http.ResponseWriter, q query, r refusal, causes ...map[string]any) {
	out := status(r)
	out["details"] = map[string]any{"name": q.name, "kind": q.resource, "causes": causes}
	answer(w, r.code, out)
}
