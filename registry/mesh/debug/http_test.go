package debug_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

func answerWith(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

func body(text string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write([]byte(text))
		return true
	}
}

// Whatever istiod answers instead of the mapping is distinguished, shown once with
// its remedy, and costs nothing that is known.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		cause  debug.Cause
		says   string
	}{
		"401":                              {answerWith(401), debug.Unauthorized, "configure a token file"},
		"403":                              {answerWith(403), debug.Forbidden, "DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES"},
		"403 names the other remedy":       {answerWith(403), debug.Forbidden, "root namespace"},
		"404":                              {answerWith(404), debug.NotServed, "ENABLE_DEBUG_ON_HTTP"},
		"500":                              {answerWith(500), debug.Refused, "HTTP 500"},
		"HTML":                             {body("<!DOCTYPE html><html>sign in</html>"), debug.NotAnswer, "HTML"},
		"plain text":                       {body("hello\x1b[2J"), debug.NotAnswer, `hello\x1b`},
		"truncated JSON":                   {body(`{"totalClients":2,"clients":[{"connectionId":"a.shop-1"`), debug.Truncated, "is incomplete"},
		"truncated between two clients":    {body(`{"totalClients":2,"clients":[{"connectionId":"a.shop-1"},`), debug.Truncated, ""},
		"fewer clients than it says":       {body(`{"totalClients":2,"clients":[{"connectionId":"a.shop-1"}]}`), debug.Truncated, "1 of 2"},
		"nothing at all":                   {body(""), debug.Truncated, ""},
		"other JSON is not an empty list":  {body(`{"error":"busy"}`), debug.NotAnswer, "without a list of clients"},
		"a JSON list is not an empty list": {body(`[]`), debug.NotAnswer, ""},
		"JSON null is not an empty list":   {body(`null`), debug.NotAnswer, ""},
		"broken JSON":                      {body(`{"totalClients":0,}`), debug.NotAnswer, "JSON"},
		"a total that is not a number":     {body(`{"totalClients":"0"}`), debug.NotAnswer, "totalClients"},
		"clients that are no list":         {body(`{"totalClients":0,"clients":{}}`), debug.NotAnswer, "clients"},
		"something behind the answer":      {body(`{"totalClients":0}{"totalClients":0}`), debug.NotAnswer, "follows"},
		"a redirect is not followed":       {redirect, debug.NotAnswer, "elsewhere.example"},
		"30 MB where 20 are allowed":       {large(30 << 20), debug.TooLarge, "maxAnswer"},
		"one client without end":           {body(`{"totalClients":1,"clients":[{"x":"` + strings.Repeat("x", 9<<20)), debug.TooLarge, "one client"},
		"slow before the first byte":       {stall(""), debug.Slow, "timeout"},
		"slow within the answer":           {stall(`{"totalClients":1,"clients":[`), debug.Slow, "timeout"},
		"connection closed":                {hangUp, debug.Unreachable, "15014"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, istiods, o := mesh(t, "127.0.0.1")
				var logged lines
				o.Log = slog.New(slog.NewTextHandler(&logged, nil))
				o.MaxBytes = 20 << 20
				istiods[0].connect("a.shop", oneA)
				w := watch(t, o)
				in(time.Second)
				istiods[0].misbehave(c.answer)
				in(18 * time.Second)
				expect(t, w, "A a")
				s := w.snapshot()
				expectCause(t, s.Err, c.cause)
				if s.Err != nil && !strings.Contains(s.Err.Error(), c.says) {
					t.Errorf("error %v, want one with %q", s.Err, c.says)
				}
				if !s.Complete {
					t.Error("Complete = false, want true after one reading")
				}
				if n := logged.count("WARN"); n != 1 {
					t.Errorf("warned %d times, want once:\n%s", n, logged.String())
				}
				istiods[0].misbehave(nil)
				istiods[0].connect("b.shop", oneB)
				in(15 * time.Second)
				expect(t, w, "A a, B b")
				if s := w.snapshot(); s.Err != nil {
					t.Errorf("Err = %v, want nil", s.Err)
				}
			})
		})
	}
}

func redirect(w http.ResponseWriter, r *http.Request) bool {
	http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
	return true
}

func large(size int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = fmt.Fprintf(w, `{"totalClients":%d,"clients":[`, 1<<20)
		for i := 0; i < size; i += 1 << 18 {
			if i > 0 {
				_, _ = w.Write([]byte(","))
			}
			_, _ = fmt.Fprintf(w, `{"connectionId":"c-%d","x":%q}`, i, strings.Repeat("x", 1<<18))
		}
		return true
	}
}

// stall sends a beginning and then nothing more.
func stall(start string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if start != "" {
			_, _ = w.Write([]byte(start))
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
		return true
	}
}

func hangUp(w http.ResponseWriter, _ *http.Request) bool {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
	return true
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) count(s string) int { return strings.Count(l.String(), s) }

func TestPorts(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
	run("15014 first, then 8080, and then 8080 at once", func(t *testing.T) {
		n := newNetwork()
		f := newIstiod()
		f.connect("a.shop", oneA)
		n.serve(t, "127.0.0.1:8080", f)
		w := watch(t, debug.Options{Replicas: debug.Static("127.0.0.1"), HTTP: &debug.HTTPOptions{Dial: n.dial}})
		in(time.Minute)
		expect(t, w, "A a")
		if want := []string{"127.0.0.1:15014", "127.0.0.1:8080"}; !slices.Equal(n.dials, want) {
			t.Errorf("dialed %v, want %v", n.dials, want)
		}
	})
	run("a port that serves no debug API is passed over", func(t *testing.T) {
		n, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].misbehave(answerWith(404))
		f := newIstiod()
		f.connect("a.shop", oneA)
		n.serve(t, "127.0.0.1:8080", f)
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a")
	})
	run("interval and timeout are what the options say", func(t *testing.T) {
		n := newNetwork()
		f := newIstiod()
		n.serve(t, "[::1]:15014", f)
		w := watch(t, debug.Options{
			Replicas: debug.Static("::1"), Interval: time.Minute, Timeout: time.Second,
			HTTP: &debug.HTTPOptions{Dial: n.dial},
		})
		in(2 * time.Second)
		if got := f.takeRequests(); !slices.Equal(got, []string{"/debug/connections"}) {
			t.Errorf("requests %v", got)
		}
		f.misbehave(stall(""))
		in(time.Minute)
		err := w.snapshot().Err
		expectCause(t, err, debug.Slow)
		if strings.Count(err.Error(), "http://[::1]:15014/debug/connections") != 1 {
			t.Errorf("error %v, want the URL once", err)
		}
	})
	run("a replica that is listed with a port is requested only at that port", func(t *testing.T) {
		n := newNetwork()
		w := watch(t, debug.Options{Replicas: debug.Static("127.0.0.1:7"), HTTP: &debug.HTTPOptions{Dial: n.dial}})
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.Unreachable)
		if want := []string{"127.0.0.1:7"}; !slices.Equal(n.dials, want) {
			t.Errorf("dialed %v, want %v", n.dials, want)
		}
	})
}

func TestNeverPush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		for range 100 {
			istiods[0].connect("x.shop", "")
		}
		watch(t, o)
		var requests []string
		for range 20 {
			in(5 * time.Second)
			istiods[0].connect("y.shop", oneA)
			requests = append(requests, istiods[0].takeRequests()...)
		}
		if len(requests) < 20 {
			t.Fatalf("only %d requests", len(requests))
		}
		for _, q := range requests {
			if strings.Contains(q, "push") {
				t.Errorf("requested %s, want single clients", q)
			}
		}
	})
}

// TestPieces: what istiod says of all clients is clients times services.
func TestPieces(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T, f *fakeIstiod, o debug.Options)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, istiods, o := mesh(t, "127.0.0.1")
				test(t, istiods[0], o)
			})
		})
	}
	run("a mesh whose adsz is many times the limit is read whole", func(t *testing.T, f *fakeIstiod, o debug.Options) {
		o.MaxBytes = 256 << 10
		for range 300 {
			f.watching(f.connect("x.shop", oneB), 1000) // 65 kB each, 19 MiB together
		}
		f.watching(f.connect("a.shop", oneA), 1000)
		w := watch(t, o)
		in(5 * time.Second)
		expect(t, w, "A a, B b")
		if s := w.snapshot(); !s.Complete || s.Err != nil || s.Unread != nil || s.Replicas[0].Clients != 301 {
			t.Errorf("complete %v, unread %v, %v, %+v", s.Complete, s.Unread, s.Err, s.Replicas)
		}
		if got := f.takeRequests(); slices.Contains(got, "/debug/adsz") {
			t.Error("requested all clients at once, want pauses")
		}
	})
	run("a client above the limit keeps its keys, and is reported with the setting", func(t *testing.T, f *fakeIstiod, o debug.Options) {
		o.MaxBytes = 64 << 10
		first := f.connect("a.shop", oneA)
		f.connect("b.shop", oneB)
		w := watch(t, o)
		in(time.Second)
		f.disconnect(first)
		f.watching(f.connect("a.shop", oneA), 2000)
		in(20 * time.Minute)
		expect(t, w, "A a, B b")
		s := w.snapshot()
		expectCause(t, s.Unread, debug.TooLarge)
		if s.Unread == nil || !strings.Contains(s.Unread.Error(), "istiod.mapping.maxAnswer") || len(s.Skipped) != 1 || s.Err != nil {
			t.Errorf("unread %v, skipped %v, %v", s.Unread, s.Skipped, s.Err)
		}
		singles := 0
		for _, q := range f.takeRequests() {
			if strings.Contains(q, "a.shop-3") {
				singles++
			}
		}
		if singles > 3 {
			t.Errorf("%d requests for it in 20 minutes", singles)
		}
	})
	run("istiod works on our requests for a quarter of the time at most", func(t *testing.T, f *fakeIstiod, o debug.Options) {
		for range 100 {
			f.connect("b.shop", oneB)
		}
		const each = 100 * time.Millisecond
		f.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.RawQuery != "" {
				<-time.NewTimer(each).C
			}
			return false
		})
		w := watch(t, o)
		in(39 * time.Second)
		if s := w.snapshot(); s.Complete || len(f.takeRequests()) < 90 {
			t.Errorf("complete after 39 s: %v", s.Complete)
		}
		in(2 * time.Second)
		expect(t, w, "B b")
	})
	run("clients that were read before a failure are not read again", func(t *testing.T, f *fakeIstiod, o debug.Options) {
		for range 20 {
			f.connect("b.shop", oneB)
		}
		f.connect("z.shop", oneA)
		f.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
			return strings.Contains(r.URL.RawQuery, "z.shop") && answerWith(500)(w, r)
		})
		w := watch(t, o)
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.Refused)
		if w.snapshot().Complete {
			t.Error("Complete = true without one client, want false")
		}
		f.misbehave(nil)
		f.takeRequests()
		in(5 * time.Second)
		if got := f.takeRequests(); !slices.Equal(got, []string{"/debug/connections", "/debug/adsz?proxyID=z.shop-21"}) {
			t.Errorf("requests %v", got)
		}
		expect(t, w, "A a, B b")
	})
}

func TestSingles(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T, f *fakeIstiod, w *watcher)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, istiods, o := mesh(t, "127.0.0.1")
				for range 200 {
					istiods[0].connect("x.shop", oneB)
				}
				w := watch(t, o)
				in(time.Second)
				istiods[0].takeRequests()
				test(t, istiods[0], w)
			})
		})
	}
	run("without new clients, only connections is requested", func(t *testing.T, f *fakeIstiod, w *watcher) {
		in(5 * time.Second)
		if got := f.takeRequests(); !slices.Equal(got, []string{"/debug/connections"}) {
			t.Errorf("requests %v", got)
		}
		expect(t, w, "B b")
	})
	run("a few new clients are requested one by one", func(t *testing.T, f *fakeIstiod, w *watcher) {
		f.connect("a.shop", oneA)
		in(5 * time.Second)
		if got := f.takeRequests(); !slices.Equal(got, []string{"/debug/connections", "/debug/adsz?proxyID=a.shop-201"}) {
			t.Errorf("requests %v", got)
		}
		expect(t, w, "A a, B b")
	})
	run("many new clients are read one by one too", func(t *testing.T, f *fakeIstiod, w *watcher) {
		for range 50 {
			f.connect("a.shop", oneA)
		}
		in(5 * time.Second)
		if got := f.takeRequests(); len(got) != 51 || slices.Contains(got, "/debug/adsz") {
			t.Errorf("requests %v", got)
		}
		expect(t, w, "A a, B b")
	})
	run("an answer about another client is not read as this one's", func(t *testing.T, f *fakeIstiod, w *watcher) {
		f.connect("z-x.shop", oneA) // z-x.shop-201; its id contains that of the next
		f.mu.Lock()
		f.clients["x.shop-20"] = istiodfake.Client{ID: "x.shop-20", ConnectedAt: time.Now(), Metadata: f.clients["z-x.shop-201"].Metadata}
		f.clients["w-x.shop-20"] = istiodfake.Client{ID: "w-x.shop-20", ConnectedAt: time.Now()}
		f.mu.Unlock()
		in(5 * time.Second)
		expect(t, w, "A a, B b")
		if got := f.takeRequests(); !slices.Contains(got, "/debug/adsz") {
			t.Errorf("requests %v", got)
		}
	})
	run("a client that disconnects between two requests is not a failure", func(t *testing.T, f *fakeIstiod, w *watcher) {
		gone := f.connect("a.shop", oneA)
		f.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.RawQuery != "" {
				f.disconnect(gone)
			}
			return false
		})
		in(5 * time.Second)
		expect(t, w, "B b")
		if s := w.snapshot(); s.Err != nil {
			t.Errorf("%v", s.Err)
		}
	})
	run("an istiod without connections is read in full", func(t *testing.T, f *fakeIstiod, w *watcher) {
		f.connect("a.shop", oneA)
		f.misbehave(func(rw http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/debug/connections" && answerWith(404)(rw, r)
		})
		in(5 * time.Second)
		expect(t, w, "A a, B b")
	})
}

func TestToken(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T, file string, o debug.Options, f *fakeIstiod)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "token")
			synctest.Test(t, func(t *testing.T) {
				_, istiods, o := mesh(t, "10.0.0.1")
				o.HTTP.TokenFile, o.HTTP.Insecure = file, true
				istiods[0].connect("a.shop", oneA)
				istiods[0].misbehave(func(w http.ResponseWriter, r *http.Request) bool {
					return r.Header.Get("Authorization") != "Bearer good" && answerWith(401)(w, r)
				})
				test(t, file, o, istiods[0])
			})
		})
	}
	run("a newline after the token is ignored", func(t *testing.T, file string, o debug.Options, _ *fakeIstiod) {
		write(t, file, " good\r\n")
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a")
	})
	run("a rotated token is used for the next question", func(t *testing.T, file string, o debug.Options, _ *fakeIstiod) {
		write(t, file, "expired")
		w := watch(t, o)
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.Unauthorized)
		write(t, file, "good")
		in(5 * time.Second)
		expect(t, w, "A a")
		if s := w.snapshot(); s.Err != nil {
			t.Errorf("%v", s.Err)
		}
	})
	run("a missing file is a clear error, and looked for again", func(t *testing.T, file string, o debug.Options, _ *fakeIstiod) {
		w := watch(t, o)
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.NoToken)
		if s := w.snapshot(); !strings.Contains(s.Err.Error(), file) {
			t.Errorf("error %v, want one with the file", s.Err)
		}
		write(t, file, "good")
		in(5 * time.Second)
		expect(t, w, "A a")
	})
	for name, text := range map[string]string{
		"an empty file":                     "\n",
		"a file with two lines":             "good\nX-Header: x",
		"a file without a token":            "a\x00b",
		"a file larger than a token can be": strings.Repeat("x", 65<<10),
	} {
		run(name+" is a clear error", func(t *testing.T, file string, o debug.Options, f *fakeIstiod) {
			write(t, file, text)
			w := watch(t, o)
			in(time.Second)
			expectCause(t, w.snapshot().Err, debug.NoToken)
			if got := f.takeRequests(); len(got) > 0 {
				t.Errorf("requested %v without a token, want nothing", got)
			}
		})
	}
	run("the token is not sent over plain HTTP unless that is configured", func(t *testing.T, file string, o debug.Options, f *fakeIstiod) {
		write(t, file, "good")
		o.HTTP.Insecure = false
		w := watch(t, o)
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.Plaintext)
		if got := f.takeRequests(); len(got) > 0 {
			t.Errorf("requests %v", got)
		}
	})
	run("the token is never in an error", func(t *testing.T, file string, o debug.Options, f *fakeIstiod) {
		write(t, file, "secret-token")
		f.misbehave(answerWith(500))
		w := watch(t, o)
		in(time.Second)
		if s := w.snapshot(); s.Err == nil || strings.Contains(s.Err.Error(), "secret-token") {
			t.Errorf("%v", s.Err)
		}
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoopbackToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "good")
	synctest.Test(t, func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		o.HTTP.TokenFile, o.HTTP.ClusterID = file, "remote"
		var header http.Header
		istiods[0].misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
			header = r.Header.Clone()
			return false
		})
		watch(t, o)
		in(time.Second)
		if header.Get("Authorization") != "Bearer good" || header.Get("Clusterid") != "remote" {
			t.Errorf("headers %v, want token and cluster", header)
		}
	})
}
