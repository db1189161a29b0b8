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
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An apiserver is a fake API server with one Lease object.
type apiserver struct {
	object  map[string]any // nil if it does not exist
	version int
	answer  func(http.ResponseWriter) // replaces the normal response; may be nil
	asked   string                    // the last request
}

func (a *apiserver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
	if a.answer != nil {
		a.answer(w)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var sent map[string]any
	_ = json.Unmarshal(body, &sent)
	of := func(o map[string]any) any { return o["metadata"].(map[string]any)["resourceVersion"] }
	switch {
	case r.Method != http.MethodPost && a.object == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodPost && a.object != nil, r.Method == http.MethodPatch && of(sent) != of(a.object):
		w.WriteHeader(http.StatusConflict)
		return
	case r.Method != http.MethodGet:
		a.object, a.version = sent, a.version+1
		a.object["metadata"].(map[string]any)["resourceVersion"] = "v" + string(rune('0'+a.version))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.object)
}

func cluster(t *testing.T) (a *apiserver, k *lease.Kubernetes, token string) {
	t.Helper()
	a = &apiserver{}
	server := httptest.NewTLSServer(a)
	t.Cleanup(server.Close)
	ca, token := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "token")
	put(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	put(t, token, "one\n")
	c := rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: ca}, BearerTokenFile: token}
	k = lease.NewKubernetes(c, "istio-system", "xds-bridge-shop")
	return a, k, token
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKubernetes(t *testing.T) {
	a, k, token := cluster(t)
	record, version, err := k.Load(t.Context())
	if err != nil || len(record) > 0 || version != "" {
		t.Fatalf("Load() = %q, %q, %v, want none", record, version, err)
	}
	one := `{"format":1,"leader":"a","term":1,"members":{"a":{"beat":1,"ttl_ms":15000}}}`
	if err := k.Save(t.Context(), []byte(one), ""); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases"
	if a.asked != "POST "+path+" Bearer one" || a.object["apiVersion"] != "coordination.k8s.io/v1" || a.object["kind"] != "Lease" {
		t.Errorf("Save() asked %s: %v, want a Lease posted to %s", a.asked, a.object, path)
	}
	spec := a.object["spec"].(map[string]any)
	at, err := time.Parse(time.RFC3339Nano, spec["renewTime"].(string))
	if err != nil || time.Since(at) > time.Minute || spec["holderIdentity"] != "a" || spec["leaseDurationSeconds"] != 15.0 {
		t.Errorf("spec = %v, %v, want the holder, its duration and now", spec, err)
	}
	if err := k.Save(t.Context(), []byte("two"), ""); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Save() of one that is there = %v, want %v", err, registry.ErrConflict)
	}
	put(t, token, "two")
	record, version, err = k.Load(t.Context())
	if err != nil || string(record) != one {
		t.Fatalf("Load() = %q, %v, want %q", record, err, one)
	}
	if a.asked != "GET "+path+"/xds-bridge-shop Bearer two" {
		t.Errorf("Load() asked %s, want the lease and the new token", a.asked)
	}
	if err := k.Save(t.Context(), []byte("three"), version); err != nil || !strings.HasPrefix(a.asked, "PATCH ") {
		t.Fatalf("Save() = %v by %s, want nil by PATCH", err, a.asked)
	}
	if err := k.Save(t.Context(), []byte("four"), version); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Save() over an old version = %v, want %v", err, registry.ErrConflict)
	}
	a.object = nil
	if err := k.Save(t.Context(), []byte("five"), version); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Save() over a deleted one = %v, want %v", err, registry.ErrConflict)
	}
}

func TestKubernetes_Refusals(t *testing.T) {
	a, k, _ := cluster(t)
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"no role": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"user u cannot get it"}`))
		}, "user u cannot get it"},
		"a token of another cluster": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, "was rejected: it has expired"},
		"a broken server":            {func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, "an error on the server"},
		"no JSON":                    {func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, "text/html"},
		"a redirect":                 {func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(http.StatusFound) }, "302"},
		"cut in half":                {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "99"); _, _ = w.Write([]byte("{")) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			a.answer = tt.answer
			if _, _, err := k.Load(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Load() = %v, want …%s…", err, tt.want)
			}
		})
	}
}
