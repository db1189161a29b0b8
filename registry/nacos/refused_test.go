package nacos_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func TestRefusalsAreErrors(t *testing.T) {
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
				t.Errorf("read: %v, %v", held, err)
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("control characters of the server in %q", err)
			}
			if groups, err := r.target.Groups(t.Context()); groups != nil || !errors.Is(err, tt.want) {
				t.Errorf("groups: %v, %v", groups, err)
			}
			if err := r.target.Write(t.Context(), change(greeter, entry(greeter, "10.0.0.2", mine))); !errors.Is(err, tt.want) {
				t.Errorf("write: %v", err)
			}
			r.expect(t, "10.0.0.1")
		})
	}
}

func TestLogin(t *testing.T) {
	withUser := func(o *nacos.Options) {
		o.Username, o.Password = "nacos", func() (string, error) { return "secret\n", nil }
	}
	server := func(ttl time.Duration) *nacosfake.Server {
		s := nacosfake.NewServer()
		s.User, s.Password, s.TokenTTL = "nacos", "secret", ttl
		return s
	}
	bubble(t, "a token that lives ten seconds is renewed before it expires", func(t *testing.T) {
		r := start(t, server(10*time.Second), withUser)
		for range 60 {
			r.write(t, entry(greeter, "10.0.0.1", mine))
			time.Sleep(time.Second)
		}
		if n := r.server.Logins(); n < 6 || n > 12 {
			t.Errorf("%d logins in a minute", n)
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
			t.Errorf("%v, %v", groups, err)
		}
	})
}
