package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// FuzzAPI shows that for any path, query and body the API answers in JSON, does not redirect,
// and releases no other hold than the named one (E2, E4, E5).
func FuzzAPI(f *testing.F) {
	for _, seed := range [][3]string{
		{"GET", "/api/v1/services/..%2F..%2Fetc", ""},
		{"GET", "/api/v1/services?limit=-1&continue=%00", ""},
		{"GET", "/api/v1/services?continue=////", ""},
		{"POST", "/api/v1/holds/h/approve", "{}"},
		{"POST", "/api/v1/holds/%0d%0a/deny", "[[["},
		{"POST", "/api/v1/reload", "{}"},
		{"GET", "/api/v1/services/<script>", ""},
		{"GET", "/api/v1/events?after=9e99", ""},
		{"PUT", "//", "x"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1", strings.NewReader(body))
		path, query, _ := strings.Cut(target, "?")
		if err != nil || !strings.HasPrefix(path, "/") {
			t.Skip("no client can send this method and target")
		}
		if req.URL.Path, req.URL.RawQuery = path, query; !json.Valid([]byte(body)) {
			req.Header.Set("X-Odd", "1")
		}
		req.Header.Set("Content-Type", "application/json")
		table, l := registry.NewTable(), &loop{st: bridge.Status{Listed: true, Holds: []bridge.Hold{{ID: "the-one"}}}}
		table.Replace(slices.Values([]*registry.Service{service()}))
		w := httptest.NewRecorder()
		server(t, table, l).Admin().ServeHTTP(w, req)
		if w.Code >= 300 && w.Code < 400 || w.Header().Get("Location") != "" {
			t.Errorf("%s %q: redirected with %d", method, target, w.Code)
		}
		if !json.Valid(w.Body.Bytes()) || strings.ContainsAny(w.Body.String(), "<>\x1b") {
			t.Errorf("%s %q: %q", method, target, w.Body)
		}
	})
}
