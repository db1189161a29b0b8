package admin_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAdmin_answersOnlyItsOwn(t *testing.T) {
	api := server(t, registry.NewTable(), &loop{}).Admin()
	for name, c := range map[string]struct {
		method, path string
		header       []string
		code         int
	}{
		"loopback by address":                     {"GET", "/api/v1/status", []string{"Host", "127.0.0.1:9901"}, 200},
		"loopback by IPv6 address":                {"GET", "/api/v1/status", []string{"Host", "[::1]:9901"}, 200},
		"loopback by name, without a port":        {"GET", "/api/v1/status", []string{"Host", "localhost"}, 200},
		"a name that was made to point here":      {"GET", "/api/v1/status", []string{"Host", "evil.example:9901"}, 421},
		"a name that begins like loopback":        {"GET", "/api/v1/status", []string{"Host", "127.0.0.1.evil.example"}, 421},
		"no host at all":                          {"GET", "/api/v1/status", []string{"Host", ""}, 421},
		"a post from another page":                {"POST", "/api/v1/holds/h/approve", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
		"a post of a form":                        {"POST", "/api/v1/holds/h/approve", []string{"Content-Type", "text/plain"}, 415},
		"an unknown path":                         {"GET", "/api/v2", nil, 404},
		"a path that a mux would redirect":        {"GET", "/api/v1//status", nil, 404},
		"a path with dots":                        {"GET", "/api/v1/../../etc", nil, 404},
		"a trailing slash":                        {"GET", "/api/v1/status/", nil, 404},
		"another method":                          {"DELETE", "/api/v1/status", nil, 404},
		"a name with a slash and no such service": {"GET", "/api/v1/services/a%2Fb", nil, 404},
	} {
		t.Run(name, func(t *testing.T) {
			w := call(api, c.method, c.path, c.header...)
			if w.Code != c.code {
				t.Errorf("code = %d %s, want %d", w.Code, w.Body, c.code)
			}
			if w.Header().Get("Location") != "" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers = %v, want nosniff and no redirect", w.Header())
			}
		})
	}
}

func TestCheckAddress(t *testing.T) {
	for _, good := range []string{"127.0.0.1:9901", "[::1]:0", "localhost:9901", "127.9.9.9:1", "[::ffff:127.0.0.1]:1", "off", "", "unix:/run/x"} {
		if err := admin.CheckAddress(good, nil); err != nil {
			t.Errorf("CheckAddress(%s) = %v, want nil", good, err)
		}
	}
	for _, bad := range []string{":9901", "0.0.0.0:9901", "[::]:9901", "10.0.0.1:9901", "bridge:9901", "127.0.0.1"} {
		if err := admin.CheckAddress(bad, nil); err == nil || !strings.HasPrefix(err.Error(), "admin.address") {
			t.Errorf("CheckAddress(%s) = %v, want an error of admin.address", bad, err)
		}
	}
}

func TestServer_overTCP(t *testing.T) {
	s, err := admin.New(t.Context(), admin.Options{
		Telemetry: "127.0.0.1:0", Admin: "127.0.0.1:0",
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "# metrics\n") }),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.New(t.Context(), admin.Options{Admin: s.TelemetryAddr().String()}); err == nil || !strings.Contains(err.Error(), "admin.address") {
		t.Errorf("New at an address in use = %v, want an error of admin.address", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	get := func(url string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	telemetry, api := "http://"+s.TelemetryAddr().String(), "http://"+s.AdminAddr().String()
	for url, want := range map[string]int{
		telemetry + "/livez": 200, telemetry + "/metrics": 200, telemetry + "/-/healthy": 200, telemetry + "/-/ready": 200,
		telemetry + "/api/v1/status": 404, api + "/api/v1/status": 200, api + "/metrics": 404,
	} {
		if code, body := get(url); code != want {
			t.Errorf("%s: %d %s", url, code, body)
		}
	}

	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", s.AdminAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /"+strings.Repeat("a", 32<<10)+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "431") {
		t.Errorf("answer to a huge header = %q, want 431", line)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServer_overASocket(t *testing.T) {
	file := t.TempDir() + "/admin.sock"
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: file, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	open := func() (*admin.Server, error) {
		return admin.New(t.Context(), admin.Options{Admin: "unix:" + file, Telemetry: "off"})
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("New at a socket in use = %v, want that another process listens", err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := open()
	if err != nil {
		t.Fatal("a socket that was left behind:", err)
	}
	if s.TelemetryAddr() != nil {
		t.Error("a listener that is off listens")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may connect, or could once: %v %v", info.Mode(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
}
