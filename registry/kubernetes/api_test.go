package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	fake "github.com/xds-bridge/xds-bridge/internal/fake/kubernetes"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// An apiWorld is an API server, before which a test may answer, and a target over it.
type apiWorld struct {
	*fake.Server

	api    *kubernetes.API
	target *kubernetes.WatchedTarget
	config *rest.Config
	fault  atomic.Pointer[fault]

	mu       sync.Mutex
	requests []string // the method, the path and the query of each
}

// A fault answers instead of the server, or reports that it does not.
type fault func(http.ResponseWriter, *http.Request) bool

func newAPIWorld(t *testing.T) *apiWorld {
	t.Helper()
	w := &apiWorld{Server: fake.NewServer()}
	server := httptest.NewServer(w)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	w.config = &rest.Config{Host: server.URL}
	api, err := kubernetes.NewAPI(w.config, "me")
	if err != nil {
		t.Fatal(err)
	}
	w.api, w.target = api, kubernetes.NewWatchedTarget(api, kubernetes.Options{Owner: "me", Namespace: namespace, Rules: true})
	return w
}

func (w *apiWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.requests = append(w.requests, r.Method+" "+r.URL.Path)
	w.mu.Unlock()
	if f := w.fault.Load(); f == nil || !(*f)(rw, r) {
		w.Server.ServeHTTP(rw, r)
	}
}

// asked returns how many requests began with a text since the last call.
func (w *apiWorld) asked(what string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if strings.HasPrefix(r, what) {
			n++
		}
	}
	w.requests = nil
	return n
}

// with answers the matching requests with a status, all of them or only the first.
func (w *apiWorld) with(code int, body string, of func(*http.Request) bool, times int, header ...string) {
	var left atomic.Int32
	left.Store(int32(times)) //nolint:gosec // few
	f := fault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !of(r) || left.Add(-1) < 0 {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			rw.Header().Set(header[i], header[i+1])
		}
		rw.WriteHeader(code)
		_, _ = io.WriteString(rw, body)
		return true
	})
	w.fault.Store(&f)
}

func every(*http.Request) bool { return true }

func continued(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }

func isApply(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.Contains(r.Header.Get("Content-Type"), "apply-patch")
}

func statusOf(code int, reason, causes string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a test","reason":%q,"code":%d,"details":{"causes":[%s]}}`, reason, code, causes)
}

const always = 1 << 20

func TestAPI_Conformance(t *testing.T) {
	t.Parallel()
	conformance.Target(t, func(t *testing.T) conformance.Fixture {
		t.Helper()
		return conformance.ServiceEntries(newAPIWorld(t).target, "me", namespace)
	})
}

func TestAPI_Pages(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	const all = 1203
	for i := range all {
		if err := w.Put("serviceentries", serviceentry.Object{
			APIVersion: serviceentry.APIVersion, Kind: serviceentry.ObjectKind, Metadata: serviceentry.ObjectMeta{Name: fmt.Sprint("n", i), Namespace: namespace},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		code   int
		body   string
		of     func(*http.Request) bool
		header []string
		fails  bool
	}{
		"as it is":                      {of: func(*http.Request) bool { return false }},
		"a page that the server forgot": {code: http.StatusGone, body: statusOf(http.StatusGone, "Expired", ""), of: continued},
		"too many requests":             {code: http.StatusTooManyRequests, body: statusOf(http.StatusTooManyRequests, "TooManyRequests", ""), of: every, header: []string{"Retry-After", "1"}},
		"an error later":                {code: http.StatusInternalServerError, of: continued, fails: true},
		"an answer of nothing":          {code: http.StatusOK, body: "{}", of: continued, fails: true},
		"another list":                  {code: http.StatusOK, body: `{"kind":"PodList","apiVersion":"v1","items":[]}`, of: continued, fails: true},
	} {
		w.with(tt.code, tt.body, tt.of, 1, tt.header...)
		groups, err := w.target.Groups(t.Context())
		switch {
		case tt.fails && (err == nil || groups != nil || errors.Is(err, registry.ErrRefused)):
			t.Errorf("%s: Groups = %d, %v, want an error other than a refusal", name, len(groups), err)
		case !tt.fails && (err != nil || len(groups) != all):
			t.Errorf("%s: Groups = %d, %v, want %d", name, len(groups), err, all)
		}
	}
}

// TestAPI_ReadsListOnce: a first reading of all causes no request for each.
func TestAPI_ReadsListOnce(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	want := encode(t, subsetCodec(t, "version"), versions("v1"))
	group := want[0].Group
	if err := bring(t.Context(), w.target.Target, "me", group, want); err != nil {
		t.Fatal(err)
	}
	if _, err := w.target.Groups(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.asked("")
	for _, requests := range []int{0, 2} {
		if got := entriesOf(t, w.target.Target, group); !slices.Equal(got, want) {
			t.Errorf("Read = %v, want %v", got, want)
		}
		if n := w.asked("GET"); n != requests {
			t.Errorf("%d requests, want %d", n, requests)
		}
	}
}

const managersCause = `{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\"","field":".spec.endpoints"}`

// TestAPI_FieldsOfAnother: what somebody wrote by hand is adopted; what another
// manager applies is not.
func TestAPI_FieldsOfAnother(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		conflicts int
		refused   bool
	}{
		"by hand": {1, false}, "applied": {always, true},
	} {
		w := newAPIWorld(t)
		want := encode(t, subsetCodec(t, ""), service("greeter", 2))
		group := want[0].Group
		if err := bring(t.Context(), w.target.Target, "me", group, want); err != nil {
			t.Fatal(err)
		}
		o := w.object(t, group.Name)
		o["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{ //nolint:forcetypeassert // of a test
			"manager": "kubectl-edit", "operation": "Update", "apiVersion": serviceentry.APIVersion, "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:spec": map[string]any{"f:endpoints": map[string]any{}}},
		}}
		if err := w.Put("serviceentries", o); err != nil {
			t.Fatal(err)
		}
		w.with(http.StatusConflict, statusOf(http.StatusConflict, "Conflict", managersCause), isApply, tt.conflicts)
		applies := w.fault.Load()
		var patches atomic.Int32
		f := fault(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch && !isApply(r) {
				text, _ := io.ReadAll(r.Body)
				if strings.Contains(string(text), "managedFields") {
					patches.Add(1)
				}
				rw.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(rw).Encode(w.object(t, group.Name))
				return true
			}
			return (*applies)(rw, r)
		})
		w.fault.Store(&f)
		err := bring(t.Context(), w.target.Target, "me", group, encode(t, subsetCodec(t, ""), service("greeter", 3)))
		if tt.refused != errors.Is(err, registry.ErrRefused) || !tt.refused && err != nil {
			t.Errorf("%s: Write() = %v, want refused: %t", name, err, tt.refused)
		}
		if tt.refused && !strings.Contains(fmt.Sprint(err), `"kubectl" (.spec.endpoints)`) {
			t.Errorf("%s: Write() = %v, want the name of the manager", name, err)
		}
		if patches.Load() != 1 {
			t.Errorf("%s: %d changes of managedFields, want 1", name, patches.Load())
		}
	}
}

// object returns a ServiceEntry as it is stored.
func (w *apiWorld) object(t *testing.T, name string) map[string]any {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/networking.istio.io/v1/namespaces/"+namespace+"/serviceentries/"+name, nil)
	answer := httptest.NewRecorder()
	w.Server.ServeHTTP(answer, r)
	var o map[string]any
	if err := json.Unmarshal(answer.Body.Bytes(), &o); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("status %d, %v, want 200", answer.Code, err)
	}
	return o
}

// TestAPI_DeletesReadVersion: nothing that changed or was created again.
func TestAPI_DeletesReadVersion(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	want := encode(t, subsetCodec(t, "version"), versions("v1"))
	group := want[0].Group
	if err := bring(t.Context(), w.target.Target, "me", group, want); err != nil {
		t.Fatal(err)
	}
	old, err := w.api.Get(t.Context(), serviceentry.ObjectKind, namespace, group.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Put("serviceentries", w.object(t, group.Name)); err != nil {
		t.Fatal(err)
	}
	if err := w.api.Delete(t.Context(), *old); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Delete of what changed = %v, want a conflict", err)
	}
	if err := bring(t.Context(), w.target.Target, "me", group, nil); err != nil {
		t.Error(err)
	}
	if groups, err := w.target.Groups(t.Context()); err != nil || len(groups) != 0 {
		t.Errorf("Groups = %v, %v, want none", groups, err)
	}
	if err := w.api.Delete(t.Context(), *old); err != nil {
		t.Errorf("Delete() of a missing object = %v, want nil", err)
	}
}

func TestAPI_Try(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	for _, kind := range []string{serviceentry.ObjectKind, serviceentry.RuleKind} {
		if err := w.api.Try(t.Context(), kind, namespace); err != nil {
			t.Error(err)
		}
	}
	if groups, err := w.target.Groups(t.Context()); err != nil || len(groups) != 0 {
		t.Errorf("Groups = %v, %v, want none", groups, err)
	}
	w.Forget("destinationrules")
	if err := w.api.Try(t.Context(), serviceentry.RuleKind, namespace); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("Try without a definition = %v, want a refusal", err)
	}
	w.with(http.StatusCreated, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`, every, 2)
	rights := kubernetes.Rights(kubernetes.Options{Namespace: namespace})[:2]
	if lacking, err := w.api.Lacking(t.Context(), rights); err != nil || !slices.Equal(lacking, rights) {
		t.Errorf("Lacking = %v, %v, want %v", lacking, err, rights)
	}
	w.with(http.StatusInternalServerError, "", every, always)
	if _, err := w.api.Lacking(t.Context(), rights); err == nil {
		t.Error("Lacking() = nil, want the failure")
	}
	if s := w.target.State(); s.Err != nil || s.At.IsZero() {
		t.Errorf("State() = %+v, want an answer without an error", s)
	}
	if _, err := w.target.Groups(t.Context()); err == nil || w.target.State().Err == nil {
		t.Errorf("State() = %+v after a failure, want an error", w.target.State())
	}
}
