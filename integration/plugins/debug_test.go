package plugins_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xmesh "github.com/xds-bridge/xds-bridge/plugins/client/mesh"
)

const greeterHost = "greeter.shop.svc.cluster.local"

// gate is before istiod's debug API and lets through who has the token.
type gate struct {
	*httptest.Server
	mu     sync.Mutex
	token  string
	broken http.HandlerFunc // answers in its place; nil: istiod does
}

func newGate(t *testing.T, istiod *harness.Istiod, token string) *gate {
	t.Helper()
	d := &gate{token: token}
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: istiod.HTTP})
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		broken, token := d.broken, d.token
		d.mu.Unlock()
		switch {
		case broken != nil:
			broken(w, r)
		case r.Header.Get("Authorization") != "Bearer "+token:
			http.Error(w, "who are you", http.StatusUnauthorized)
		default:
			behind.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *gate) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// meshClient returns a client of istiod whose debug API is behind a proxy. A
// client logs into log, which may be nil.
func meshClient(t *testing.T, at mesh, d *gate, tokenFile string, log *slog.Logger) *client.Client {
	t.Helper()
	text := fmt.Sprintf("mesh://%s?name=%s&namespace=shop&ip=127.0.0.1&debug=%s&interval=100ms&allow=127.0.0.0/8&token=%s",
		at.istiod.GRPC, strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-"), strings.TrimPrefix(d.URL, "http://"), tokenFile)
	c, err := client.Open(text, client.Options{DrainDelay: time.Millisecond, Log: log}, xmesh.Kind())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// awaitPorts waits until a client sees the greeter exactly at these ports, of
// which it may be unsure.
func awaitPorts(t *testing.T, c *client.Client, want ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	w := c.Watch(client.ByInterface("greeter", "", ""))
	defer w.Stop()
	for {
		s, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%v; want %v", err, want)
		}
		var ports []int
		for _, e := range s.Endpoints {
			ports = append(ports, int(e.Port))
		}
		if slices.Equal(ports, want) {
			return
		}
	}
}

func instance(port int) client.Instance {
	return client.Instance{Application: "greeter", Host: "127.0.0.1", Port: uint16(port), Protocol: "grpc"} //nolint:gosec // a port
}

// TestDebugAPI: a client of the mesh by its service keys where the
// debug API refuses or breaks, and where its token is replaced.
func TestDebugAPI(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	at, ok := startMesh(t).(mesh)
	if !ok {
		t.Fatal("no mesh")
	}
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	d := newGate(t, at.istiod, "first")
	at.Apply(t, harness.Service{Host: greeterHost, Port: 80, Endpoints: harness.Local(18101)})
	var log lockedBuffer
	c := meshClient(t, at, d, file, slog.New(slog.NewTextHandler(&log, nil)))
	if err := c.Register(instance(18101)); err != nil {
		t.Fatal(err)
	}
	awaitPorts(t, c, 18101)
	endpoints := func(ports ...int) {
		t.Helper()
		at.Apply(t, harness.Service{Host: greeterHost, Port: 80, Endpoints: harness.Local(ports...)})
	}

	t.Run("a token that is replaced is used for the next question", func(t *testing.T) {
		write("second")
		d.set(func() { d.token = "second" })
		another := client.Instance{Application: "farewell", Host: "127.0.0.1", Port: 18101, Protocol: "grpc"}
		if err := c.Register(another); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		if err := c.WaitVisible(ctx, another); err != nil { // which the debug API has to report
			t.Fatal(err)
		}
	})
	for name, broken := range map[string]http.HandlerFunc{
		"403": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"404": http.NotFound,
		"truncated": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"totalClients":2,"clients":[{"conn`))
		},
		"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			endpoints(18101)
			awaitPorts(t, c, 18101)
			var asked sync.WaitGroup
			asked.Add(5)
			left := 5
			d.set(func() {
				d.broken = func(w http.ResponseWriter, r *http.Request) {
					d.set(func() {
						if left--; left >= 0 {
							asked.Done()
						}
					})
					broken(w, r)
				}
			})
			asked.Wait()
			endpoints(18101, 18102) // the key is known, so its endpoints are followed
			awaitPorts(t, c, 18101, 18102)
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			host := naming.HostAddress{Host: greeterHost, Port: 80}
			fresh := meshClient(t, at, d, file, nil) // one that knows no key continues by host
			if s, err := fresh.Resolve(ctx, client.ByHost(host.String())); err != nil || len(s.Endpoints) != 2 {
				t.Errorf("by host: %+v, %v", s, err)
			}
			if s, err := fresh.Resolve(ctx, client.Named(host.String())); err != nil || len(s.Endpoints) != 2 || s.Err == nil {
				t.Errorf("by name: %+v, %v; want two endpoints and why there may be more", s, err)
			}
			d.set(func() { d.broken = nil })
			endpoints(18101)
			awaitPorts(t, c, 18101)
		})
	}
	t.Run("it is said why a key is not known", func(t *testing.T) {
		d.set(func() {
			d.broken = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }
		})
		fresh := meshClient(t, at, d, file, nil)
		harness.Eventually(t, soon, "the cause is reported", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := fresh.Resolve(ctx, client.ByInterface("greeter", "", "")); !errors.Is(err, client.ErrDebugRefused) {
				return fmt.Errorf("got %v", err) //nolint:errorlint // it may be nil
			}
			return nil
		})
	})
	// One for each direction, and what starting costs; all instances here are at a loopback address.
	n := strings.Count(log.String(), "level=WARN") - strings.Count(log.String(), "instance at a loopback address")
	if n > 4+2 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

// lockedBuffer is a buffer that may be written while it is read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
