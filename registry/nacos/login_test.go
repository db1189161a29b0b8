package nacos

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestThePasswordFollowsNoRedirect_E1_E9: a server that sends the login
// elsewhere is an error, and nobody else is told the password.
func TestThePasswordFollowsNoRedirect_E1_E9(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect) // which repeats the body
	}))
	defer server.Close()
	l := newLogin(&Client{opts: Options{Dialer: new(net.Dialer).DialContext, Timeout: 10 * time.Second}})
	_, err := l.post(t.Context(), server.URL+"/v1/auth/login", url.Values{"password": {"s3cret"}})
	if err == nil || !strings.Contains(err.Error(), "status 307") || asked.Load() > 0 {
		t.Errorf("%v, and %d requests elsewhere", err, asked.Load())
	}
}
