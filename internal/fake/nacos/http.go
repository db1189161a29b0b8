package nacos

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// overHTTP serves logins and the list of namespaces.
type overHTTP struct{ *Server }

// Logins returns the number of issued tokens.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

func (s overHTTP) login(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.FormValue("username") != s.User || r.FormValue("password") != s.Password {
		http.Error(w, "unknown user!", http.StatusForbidden)
		return
	}
	s.logins++
	token := "token-" + strconv.Itoa(s.logins)
	s.tokens[token] = time.Now().Add(s.TokenTTL)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"accessToken": token, "tokenTtl": int64(s.TokenTTL.Seconds())})
}

// AddNamespace adds a namespace to the list.
func (s *Server) AddNamespace(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Namespaces[id] = id
}

func (s overHTTP) namespaces(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []map[string]string{}
	for id, name := range s.Namespaces {
		all = append(all, map[string]string{"namespace": id, "namespaceShowName": name})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"code": 200, "data": all})
}
