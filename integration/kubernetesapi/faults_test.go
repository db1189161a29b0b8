package kubernetesapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A fault answers a request instead of the API server, or reports that it does not.
type fault func(http.ResponseWriter, *http.Request) bool

// A proxy is before the API server, and has it answer as it never does when asked.
type proxy struct {
	*httptest.Server

	fault atomic.Pointer[fault]
}

// proxied returns a world whose requests go through a proxy.
func (w *world) proxied(t *testing.T) (*world, *proxy) {
	t.Helper()
	server, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	through := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		FlushInterval: -1, // what a watch sends
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	if through.Transport, err = rest.TransportFor(w.config(harness.Administrator)); err != nil {
		t.Fatal(err)
	}
	p := new(proxy)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := p.fault.Load(); f == nil || !(*f)(w, r) {
			through.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return w.as(t, w.namespace, &rest.Config{Host: p.URL, BearerToken: harness.Administrator}), p
}

func (p *proxy) with(f fault) { p.fault.Store(&f) }

func (p *proxy) heal() { p.fault.Store(nil) }

// once is a fault of the first request that it is for.
func once(of func(*http.Request) bool, answer func(http.ResponseWriter)) fault {
	var done atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !of(r) || done.Swap(true) {
			return false
		}
		answer(w)
		return true
	}
}

func always(of func(*http.Request) bool, answer func(http.ResponseWriter)) fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if of(r) {
			answer(w)
		}
		return of(r)
	}
}

func all(*http.Request) bool { return true }

func continued(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }

// answering answers with a status and a body.
func answering(status int, body string, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// cut ends an answer in its middle.
func cut(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntryList","metadata":{},"items":[`))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func statusOf(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a test","reason":%q,"code":%d}`, reason, code)
}

// pages is how many objects fill three pages.
const pages = 1203

// testPages has all pages of a list be read, whatever happens between them.
func testPages(t *testing.T, w *world) {
	for i := range pages {
		w.Do(t, http.MethodPost, w.path(""), fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"n%d"},
			"spec":{"hosts":["n%[1]d.internal"],"ports":[{"number":80,"name":"http"}],"resolution":"NONE"}}`, i))
	}
	w, p := w.proxied(t)
	for name, f := range map[string]fault{
		"as it is":                      func(http.ResponseWriter, *http.Request) bool { return false },
		"a page that the server forgot": once(continued, answering(http.StatusGone, statusOf(http.StatusGone, "Expired"))),
		"too many requests":             once(all, answering(http.StatusTooManyRequests, statusOf(http.StatusTooManyRequests, "TooManyRequests"), "Retry-After", "1")),
	} {
		p.with(f)
		if groups, err := w.target.Groups(t.Context()); err != nil || len(groups) != pages {
			t.Errorf("%s: Groups = %d, %v, want %d", name, len(groups), err, pages)
		}
	}
	for name, f := range map[string]fault{
		"an error at first":    once(all, answering(http.StatusInternalServerError, statusOf(http.StatusInternalServerError, "InternalError"))),
		"an error later":       once(continued, answering(http.StatusInternalServerError, "")),
		"a page that is cut":   once(continued, cut),
		"an answer of nothing": once(continued, answering(http.StatusOK, "")),
		"an empty object":      once(continued, answering(http.StatusOK, "{}")),
		"another object":       once(continued, answering(http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)),
		"a page of HTML":       once(continued, answering(http.StatusOK, "<html>log in</html>", "Content-Type", "text/html")),
		"always gone":          always(all, answering(http.StatusGone, statusOf(http.StatusGone, "Expired"))),
	} {
		p.with(f)
		if groups, err := w.target.Groups(t.Context()); err == nil || errors.Is(err, registry.ErrRefused) || groups != nil {
			t.Errorf("%s: Groups = %d, %v, want an error that is no refusal", name, len(groups), err)
		}
	}
}

// testFaults shows that no failure is mistaken for an object that is not there.
func testFaults(t *testing.T, w *world) {
	want := w.write(t, service("greeter", 3))
	group := want[0].Group
	w, p := w.proxied(t)
	for name, answer := range map[string]func(http.ResponseWriter){
		"an error":           answering(http.StatusInternalServerError, statusOf(http.StatusInternalServerError, "InternalError")),
		"an answer cut":      cut,
		"nothing":            answering(http.StatusOK, ""),
		"an empty object":    answering(http.StatusOK, "{}"),
		"another object":     answering(http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`),
		"not found, as text": answering(http.StatusNotFound, "404 page not found", "Content-Type", "text/plain"),
		"not found, of what": answering(http.StatusNotFound, statusOf(http.StatusNotFound, "NotFound")),
		"unauthorized":       answering(http.StatusUnauthorized, statusOf(http.StatusUnauthorized, "Unauthorized")),
	} {
		p.heal()
		c, err := w.change(t.Context(), group, w.encode(t, service("greeter", 4))...)
		if err != nil {
			t.Fatal(err)
		}
		gone, err := w.change(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		o := w.object(t, group.Name)
		p.with(always(all, answer))
		held, err := w.target.Read(t.Context(), group)
		if err == nil || held != nil {
			t.Errorf("%s: Read = %v, %v, want an error", name, held, err)
		}
		for what, err := range map[string]error{
			"Write":           w.target.Write(t.Context(), c),
			"Write of none":   w.target.Write(t.Context(), gone), // which reads the object first
			"Put":             w.api.Put(t.Context(), o),
			"Try":             w.api.Try(t.Context(), serviceentry.ObjectKind, w.namespace),
			"Put without one": w.api.Put(t.Context(), serviceentry.Object{Kind: serviceentry.ObjectKind, Metadata: serviceentry.ObjectMeta{Name: "a", Namespace: w.namespace}}),
		} {
			if err == nil {
				t.Errorf("%s: %s says nothing", name, what)
			}
		}
		if err := w.api.Delete(t.Context(), o); err == nil && strings.HasPrefix(name, "not found") {
			t.Errorf("%s: Delete says nothing", name)
		}
	}
	p.heal()
	w.expect(t, want)
	if err := w.target.State().Err; err != nil {
		t.Errorf("the state after that is %v", err)
	}
}

// testBroken has an object cost itself alone that cannot be read.
func testBroken(t *testing.T, w *world) {
	want := w.write(t, service("greeter", 3))
	const broken = "broken.zk.bridge.internal"
	text := fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":%q,"namespace":%q},"spec":{"ports":"many"}}`, broken, w.namespace)
	list := fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntryList","metadata":{},"items":[%s,%s]}`,
		text, w.Do(t, http.MethodGet, w.path(want[0].Group.Name), ""))
	w, p := w.proxied(t)
	p.with(always(func(r *http.Request) bool { return r.URL.Path == w.path("") }, answering(http.StatusOK, list)))
	if groups, err := w.target.Groups(t.Context()); err != nil || len(groups) != 1 || groups[0] != want[0].Group {
		t.Errorf("Groups = %v, %v, want that which can be read", groups, err)
	}
	w.expect(t, want)
	p.with(always(func(r *http.Request) bool { return r.URL.Path == w.path(broken) }, answering(http.StatusOK, text)))
	group := want[0].Group
	group.Name = broken
	_, err := w.target.Read(t.Context(), group)
	refusedWith(t, err, broken, "repair or delete it")
}

// testWriteUnanswered repeats a write whose answer was lost.
func testWriteUnanswered(t *testing.T, w *world) {
	want := w.encode(t, service("greeter", 3))
	direct := w
	w, p := w.proxied(t)
	c, err := w.change(t.Context(), want[0].Group, want...)
	if err != nil {
		t.Fatal(err)
	}
	p.with(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		if err := direct.bring(r.Context(), want[0].Group, want...); err != nil {
			t.Error(err)
		}
		cut(rw)
		return true
	})
	if err := w.target.Write(t.Context(), c); err == nil || errors.Is(err, registry.ErrRefused) {
		t.Errorf("Write = %v, want an error that is no refusal", err)
	}
	p.heal()
	if err := w.target.Write(t.Context(), c); err != nil {
		t.Errorf("Write once more: %v", err)
	}
	w.expect(t, want)
	if !strings.Contains(w.Do(t, http.MethodGet, w.path(want[0].Group.Name), ""), `"manager":"xds-bridge/`+owner) {
		t.Error("its fields belong to another manager")
	}
}
