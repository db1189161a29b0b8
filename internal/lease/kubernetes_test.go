package lease_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An apiserver does with one Lease object what the real one does, and what
// that one cannot be made to do.
type apiserver struct {
	mu      sync.Mutex
	object  map[string]any // nil: there is none
	version int
	answer  func(http.ResponseWriter) bool // in place of the real thing
	asked   []string
}

func (a *apiserver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	if a.answer != nil && a.answer(w) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	var sent map[string]any
	_ = json.Unmarshal(body, &sent)
	fail := func(status int) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"kind":"Status","message":"no"}`))
	}
	switch {
	case r.Method == http.MethodPost && a.object != nil:
		fail(http.StatusConflict)
		return
	case r.Method == http.MethodPost:
		a.object = sent
	case a.object == nil:
		fail(http.StatusNotFound)
		return
	case r.Method == http.MethodPatch:
		if sent["metadata"].(map[string]any)["resourceVersion"] != a.object["metadata"].(map[string]any)["resourceVersion"] {
			fail(http.StatusConflict)
			return
		}
		a.object = sent
	}
	if r.Method != http.MethodGet {
		a.version++
		a.object["metadata"].(map[string]any)["resourceVersion"] = "v" + string(rune('0'+a.version))
	}
	_ = json.NewEncoder(w).Encode(a.object)
}

func cluster(t *testing.T) (*apiserver, *lease.Kubernetes, lease.KubernetesOptions) {
	t.Helper()
	a := &apiserver{}
	server := httptest.NewTLSServer(a)
	t.Cleanup(server.Close)
	o := lease.KubernetesOptions{
		Server: server.URL, Namespace: "istio-system", Name: "xds-bridge-shop", TTL: ttl,
		CAFile: filepath.Join(t.TempDir(), "ca.pem"), TokenFile: filepath.Join(t.TempDir(), "token"),
	}
	put(t, o.CAFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	put(t, o.TokenFile, "one\n")
	k, err := lease.NewKubernetes(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return a, k, o
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKubernetes(t *testing.T) {
	a, k, o := cluster(t)
	record, version, err := k.Load(t.Context())
	if err != nil || len(record) > 0 || version != "" {
		t.Fatalf("%q %q %v", record, version, err)
	}
	if err := k.Save(t.Context(), []byte("one"), ""); err != nil {
		t.Fatal(err)
	}
	if err := k.Save(t.Context(), []byte("two"), ""); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("made twice: %v", err)
	}
	put(t, o.TokenFile, "two")
	record, version, err = k.Load(t.Context())
	if err != nil || string(record) != "one" {
		t.Fatalf("%q %v", record, err)
	}
	if last := a.asked[len(a.asked)-1]; last != "GET /apis/coordination.k8s.io/v1/namespaces/istio-system/leases/xds-bridge-shop Bearer two" {
		t.Error(last)
	}
	if err := k.Save(t.Context(), []byte("three"), version); err != nil {
		t.Fatal(err)
	}
	if err := k.Save(t.Context(), []byte("four"), version); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("an old version was replaced: %v", err)
	}
	a.object = nil
	if err := k.Save(t.Context(), []byte("five"), version); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("a deleted one was replaced: %v", err)
	}
}

func TestKubernetesRefusals(t *testing.T) {
	a, k, _ := cluster(t)
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"no role":           {func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, "get is not allowed: the service account needs a Role in namespace istio-system with get, create and patch of leases"},
		"a token of others": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, "is not accepted: it has expired"},
		"broken":            {func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, "status 500"},
		"no JSON":           {func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, "none of Kubernetes"},
		"a redirect":        {func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(http.StatusFound) }, "status 302"},
		"cut in half":       {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "99"); _, _ = w.Write([]byte("{")) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			a.answer = func(w http.ResponseWriter) bool { tt.answer(w); return true }
			_, _, err := k.Load(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want …%s…", err, tt.want)
			}
		})
	}
	for name, o := range map[string]lease.KubernetesOptions{
		"no server": {Namespace: "a", Name: "b"}, "no name": {Server: "https://a", Namespace: "a"}, "no namespace": {Server: "https://a", Name: "b"},
	} {
		if _, err := lease.NewKubernetes(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
