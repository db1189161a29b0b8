package nacos_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func TestClient_Servers(t *testing.T) {
	three := func(dead func(ctx context.Context) error) func(*nacos.Options, *rig) {
		return func(o *nacos.Options, r *rig) {
			o.Servers = []string{"http://dead1:8848", "http://nacos:8848", "http://dead2:8848"}
			o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
				if strings.HasPrefix(address, "dead") {
					return nil, dead(ctx)
				}
				return r.dial(ctx, network, address)
			}
		}
	}
	for name, tt := range map[string]struct {
		dead func(ctx context.Context) error
		most time.Duration // until the first write is through
	}{
		"two of three servers refuse connections":   {func(context.Context) error { return errors.New("connection refused") }, 50 * time.Millisecond},
		"two of three servers do not answer at all": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 25 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			s := nacosfake.NewServer()
			s.User, s.Password = "nacos", "secret"
			r := &rig{server: s, rpc: bufconn.Listen(1 << 20), web: bufconn.Listen(1 << 20)}
			s.Serve(r.rpc, r.web)
			t.Cleanup(s.Close)
			began := time.Now()
			r.client, r.target, r.stop = r.connect(t, func(o *nacos.Options) {
				three(tt.dead)(o, r)
				o.Username, o.Password = "nacos", func() (string, error) { return "secret", nil }
			})
			var err error
			for range 6 {
				if err = r.target.Write(t.Context(), change(greeter, entry(greeter, "10.0.0.1", mine))); err == nil {
					break
				}
			}
			if took := time.Since(began); err != nil || took > tt.most {
				t.Errorf("Write() = %v after %s, want nil within %s", err, took, tt.most)
			}
			r.expect(t, "10.0.0.1")
		})
	}
}

// authority is a CA of its own.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// validity is when certificates are valid, which includes the virtual clock's
// time.
func validity() (from, to time.Time) {
	return time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from, to := validity()
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key, cert}
}

// server returns what a server called host presents.
func (a *authority) server(t *testing.T, host string) *tls.Config {
	t.Helper()
	from, to := validity()
	form := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{host}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, form, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: a.key}},
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

func (a *authority) write(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// trust reads a CA file at each call.
func trust(file string) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		return &tls.Config{RootCAs: pool}, nil
	}
}

func TestClient_TLS(t *testing.T) {
	secured := func(t *testing.T, a *authority, host, file string) *rig {
		t.Helper()
		s := nacosfake.NewServer()
		s.User, s.Password = "nacos", "secret"
		r := &rig{server: s, rpc: bufconn.Listen(1 << 20), web: bufconn.Listen(1 << 20)}
		cfg := a.server(t, host)
		s.Serve(tls.NewListener(r.rpc, cfg), tls.NewListener(r.web, cfg))
		t.Cleanup(s.Close)
		r.client, r.target, r.stop = r.connect(t, func(o *nacos.Options) {
			o.Servers, o.TLS = []string{"https://nacos:8848"}, trust(file)
			o.Username, o.Password = "nacos", func() (string, error) { return "secret", nil }
		})
		return r
	}
	bubble(t, "login and connection are over TLS, and a renewed CA file requires no restart", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca.pem")
		right := newAuthority(t, "right")
		newAuthority(t, "wrong").write(t, file)
		r := secured(t, right, "nacos", file)
		err := r.target.Write(t.Context(), change(greeter, entry(greeter, "10.0.0.1", mine)))
		if !errors.Is(err, nacos.ErrNotConnected) || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("Write() with the wrong CA = %v, want ErrNotConnected for its certificate", err)
		}
		right.write(t, file)
		time.Sleep(time.Minute)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1")
		if n := r.server.Logins(); n != 1 {
			t.Errorf("%d logins, want 1", n)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		r.write(t, entry(greeter, "10.0.0.2", mine))
		r.server.Drop()
		time.Sleep(time.Second)
		if got := r.client.State(); got.Connected || !strings.Contains(got.LastError, "caFile") {
			t.Errorf("State() without the CA file = %+v, want the error of caFile", got)
		}
	})
	bubble(t, "a server of another name is refused", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca.pem")
		ca := newAuthority(t, "ca")
		ca.write(t, file)
		r := secured(t, ca, "elsewhere", file)
		if groups, err := r.target.Groups(t.Context()); groups != nil || err == nil || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("Groups() = %v, %v, want the error of a certificate for elsewhere", groups, err)
		}
		if n := r.server.Logins(); n != 0 {
			t.Errorf("%d logins at a server of another name, want none", n)
		}
	})
}

func TestClient_RefusalsAreErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		code    int
		want    error
		refused bool
	}{
		"access revoked": {403, nacos.ErrDenied, true},
		"throttled":      {503, nacos.ErrThrottled, false},
		"over the limit": {-503, nacos.ErrThrottled, false},
		"not ready":      {300, nacos.ErrNotReady, false},
		"invalid":        {400, registry.ErrRefused, true},
	} {
		bubble(t, name, func(t *testing.T) {
			r := start(t, nacosfake.NewServer(), nil)
			r.write(t, entry(greeter, "10.0.0.1", mine))
			r.server.Fail(func(q nacosfake.Request) (int, string) {
				if q.Type == "HealthCheckRequest" {
					return 0, ""
				}
				return tt.code, "no\x1b[31m"
			})
			held, err := r.target.Read(t.Context(), greeter)
			if held != nil || !errors.Is(err, tt.want) || errors.Is(err, registry.ErrRefused) != tt.refused {
				t.Errorf("Read() = %v, %v, want %v", held, err, tt.want)
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("Read() = %q, want no control characters of the server", err)
			}
			if groups, err := r.target.Groups(t.Context()); groups != nil || !errors.Is(err, tt.want) {
				t.Errorf("Groups() = %v, %v, want %v", groups, err, tt.want)
			}
			if err := r.target.Write(t.Context(), change(greeter, entry(greeter, "10.0.0.2", mine))); !errors.Is(err, tt.want) {
				t.Errorf("Write() = %v, want %v", err, tt.want)
			}
			r.expect(t, "10.0.0.1")
		})
	}
}

func TestClient_Login(t *testing.T) {
	withUser := func(o *nacos.Options) {
		o.Username, o.Password = "nacos", func() (string, error) { return "secret\n", nil }
	}
	server := func(ttl time.Duration) *nacosfake.Server {
		s := nacosfake.NewServer()
		s.User, s.Password, s.TokenTTL = "nacos", "secret", ttl
		return s
	}
	bubble(t, "a token that is valid for ten seconds is renewed before it expires", func(t *testing.T) {
		r := start(t, server(10*time.Second), withUser)
		for range 60 {
			r.write(t, entry(greeter, "10.0.0.1", mine))
			time.Sleep(time.Second)
		}
		if n := r.server.Logins(); n < 6 || n > 12 {
			t.Errorf("%d logins in a minute, want 6 to 12", n)
		}
	})
	bubble(t, "a token that was revoked is replaced within the same call", func(t *testing.T) {
		r := start(t, server(time.Hour), withUser)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		time.Sleep(2 * time.Second)
		r.server.Revoke()
		r.write(t, entry(greeter, "10.0.0.2", mine))
		r.expect(t, "10.0.0.2")
	})
	bubble(t, "a wrong password is one clear error and never an empty list", func(t *testing.T) {
		s := server(time.Hour)
		r := start(t, s, func(o *nacos.Options) {
			o.Username, o.Password = "nacos", func() (string, error) { return "wrong", nil }
		})
		groups, err := r.target.Groups(t.Context())
		if groups != nil || !errors.Is(err, nacos.ErrNotConnected) || !strings.Contains(err.Error(), "passwordFile") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("Groups() = %v, %v, want ErrNotConnected that names passwordFile", groups, err)
		}
	})
}

// TestClient_MissingNamespace: a server accepts what is written there, so the
// connection reports it until the namespace exists.
func TestClient_MissingNamespace(t *testing.T) {
	for name, tt := range map[string]struct {
		listed map[string]string
		want   string
	}{
		"it does not exist":          {listed: map[string]string{"": "public", "5f3c": "Test"}, want: `the namespace does not exist: "Test" is the name of the namespace with the id "5f3c"`},
		"it exists":                  {listed: map[string]string{"": "public", "Test": "Test"}},
		"the server does not answer": {},
		"the server reports no one":  {listed: map[string]string{}},
	} {
		bubble(t, name, func(t *testing.T) {
			server := nacosfake.NewServer()
			server.Namespaces = tt.listed
			r := start(t, server, func(o *nacos.Options) { o.Namespace = "Test" })
			r.write(t, entry(greeter, "10.0.0.1", mine))
			time.Sleep(time.Second)
			if got := r.client.State(); !got.Connected || got.LastError != tt.want {
				t.Errorf("State() = %+v, want a connection with the error %q", got, tt.want)
			}
			if tt.want == "" {
				return
			}
			server.AddNamespace("Test")
			time.Sleep(time.Minute)
			if got := r.client.State(); !got.Connected || got.LastError != "" {
				t.Errorf("State() = %+v once the namespace exists, want no error", got)
			}
		})
	}
}
