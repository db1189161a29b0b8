package nacos

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestLogin_FollowsNoRedirect: a server that sends the login
// elsewhere is an error, and the password is not sent there.
func TestLogin_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect) // which repeats the body
	}))
	defer server.Close()
	l := newLogin(&Client{opts: Options{Dialer: new(net.Dialer).DialContext, Timeout: 10 * time.Second}})
	_, err := l.request(t.Context(), server.URL+"/v1/auth/login", url.Values{"password": {"s3cret"}})
	if err == nil || !strings.Contains(err.Error(), "status 307") || asked.Load() > 0 {
		t.Errorf("request() = %v with %d requests elsewhere, want status 307 and none", err, asked.Load())
	}
}

// TestLogin_CancelledAttemptKeepsTheAnswer: who waits no longer gets what the
// server answered, and not that he waited no longer.
func TestLogin_CancelledAttemptKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		giveUp func(context.Context) (context.Context, context.CancelFunc)
	}{
		"it is cancelled": {context.WithCancel},
		"its time is over": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
			return ctx, cancel
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.NotFoundHandler())
			defer server.Close()
			c, err := New(Options{
				Servers: []string{server.URL}, GRPCPort: 1, Username: "nacos",
				Password: func() (string, error) { return "secret", nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.login.login(t.Context()); err == nil || !strings.Contains(err.Error(), "status 404") {
				t.Fatal(err)
			}
			ctx, cancel := test.giveUp(t.Context())
			cancel()
			if err := c.login.login(ctx); err == nil || strings.Contains(err.Error(), "404") {
				t.Errorf("login() that is cancelled = %v, want an error without the earlier answer", err)
			}
			if err := c.login.state().Err; err == nil || !strings.Contains(err.Error(), "status 404") {
				t.Errorf("state().Err = %v, want the earlier answer with status 404", err)
			}
		})
	}
}

// TestLogin_AsksTheNextServer: a server that says nothing of the
// password does not prevent a login at another server.
func TestLogin_AsksTheNextServer(t *testing.T) {
	t.Parallel()
	for status, denies := range map[int]bool{
		http.StatusUnauthorized: true, http.StatusForbidden: true,
		http.StatusBadRequest: false, http.StatusNotFound: false, http.StatusGone: false, http.StatusTooManyRequests: false,
		http.StatusInternalServerError: false, http.StatusBadGateway: false, http.StatusServiceUnavailable: false,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "server is STARTING now, please try again later!", status)
			}))
			defer first.Close()
			var asked atomic.Int32
			second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				_, _ = w.Write([]byte(`{"accessToken":"t","tokenTtl":18000}`))
			}))
			defer second.Close()
			c, err := New(Options{
				Servers: []string{first.URL, second.URL}, GRPCPort: 1, Username: "nacos",
				Password: func() (string, error) { return "secret", nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			err = c.login.first(t.Context())
			switch {
			case denies && (!errors.Is(err, ErrDenied) || asked.Load() != 0):
				t.Errorf("login() = %v with %d requests to the next server, want a denial and none", err, asked.Load())
			case !denies && (err != nil || asked.Load() != 1):
				t.Errorf("login() = %v with %d requests to the next server, want one", err, asked.Load())
			}
		})
	}
}
