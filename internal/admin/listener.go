package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The limits of a request. A slow client occupies a connection for at most this time.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 60 * time.Second
	maxHeader     = 16 << 10
	maxBody       = 16 << 10
)

// newHTTPServer returns a server with these limits.
func newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           http.MaxBytesHandler(h, maxBody),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
}

// CheckAddress returns an error if other hosts could reach the address of the API and the
// API is not secured. The API can release holds.
func CheckAddress(address string, secure *Secure) error {
	if _, unix := strings.CutPrefix(address, unixPrefix); unix || isOff(address) {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("admin.address %q: must be host:port, such as 127.0.0.1:9901", address)
	}
	if isLoopback(host) || secure != nil {
		return nil
	}
	return fmt.Errorf("admin.address %q: only loopback is accepted without admin.tls and admin.tokenFile; "+
		"set both, or set 127.0.0.1:%s and use kubectl port-forward or ssh -L", address, port)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// A requestCheck returns the status code and the reason of a refusal. A code of 0 accepts
// the request.
type requestCheck func(r *http.Request) (code int, reason string)

// checkHost refuses requests whose Host header is not loopback. A page in a browser sends
// another name if its own name was resolved to this host (DNS rebinding).
func checkHost(r *http.Request) (int, string) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if isLoopback(host) {
		return 0, ""
	}
	return http.StatusMisdirectedRequest,
		"the Host header is not a loopback address; call the API as 127.0.0.1 or localhost"
}

// checkOrigin refuses requests that a page of another origin makes in a browser.
func checkOrigin(r *http.Request) (int, string) {
	if http.NewCrossOriginProtection().Check(r) == nil {
		return 0, ""
	}
	return http.StatusForbidden, "requests from pages of another origin are refused"
}

// checkJSON refuses a POST that is not JSON. Browsers send JSON to another origin only if
// that origin allows it, but they send forms to any origin.
func checkJSON(r *http.Request) (int, string) {
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method != http.MethodPost || mediaType == "application/json" {
		return 0, ""
	}
	return http.StatusUnsupportedMediaType, "send the request with Content-Type: application/json"
}

// OwnerHeader is the header with the owner of the bridge that the caller means.
const OwnerHeader = "X-Xds-Bridge-Owner"

// checkOwner refuses requests that mean the bridge of another owner.
func (s *Server) checkOwner(r *http.Request) (int, string) {
	if want, own := r.Header.Get(OwnerHeader), s.current().owner; want != "" && want != own {
		return http.StatusPreconditionFailed, "the bridge that runs here has owner " + strconv.Quote(own)
	}
	return 0, ""
}

// withChecks returns a handler that passes on the requests that no check refuses. Unlike a
// ServeMux, it refuses paths that are not clean and never redirects. It also sets the
// headers that prevent a browser from interpreting an answer as HTML or script.
func withChecks(next http.Handler, checks ...requestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		if p := r.URL.EscapedPath(); !strings.HasPrefix(p, "/") || path.Clean(p) != p {
			replyProblem(w, http.StatusNotFound, "no such path")
			return
		}
		for _, check := range checks {
			code, reason := check(r)
			if code == http.StatusUnauthorized {
				h.Set("WWW-Authenticate", "Bearer")
			}
			if code != 0 {
				replyProblem(w, code, reason)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Secure protects an API that other hosts may reach. Both functions are called for each
// connection or request, so that files can be rotated.
type Secure struct {
	Certificate func() (*tls.Certificate, error)
	Token       func() (string, error) // the token that every request must have
}

func (s *Secure) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() },
	}
}

// checkToken refuses requests without the token. A page in a browser does not know the
// token. The reason does not reveal why a token is wrong.
func (s *Secure) checkToken(r *http.Request) (int, string) {
	token, err := s.Token()
	received, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(received))
	if err != nil || token == "" || !isBearer || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return http.StatusUnauthorized, "send the token of admin.tokenFile as Authorization: Bearer"
	}
	return 0, ""
}

// unixPrefix begins the address of a Unix socket.
const unixPrefix = "unix:"

// isOff reports whether an address means that there is no listener.
func isOff(address string) bool { return address == "" || address == "off" }

// listen opens the listener of a setting. It returns nil if the address is off.
func listen(ctx context.Context, setting, address string) (net.Listener, error) {
	if isOff(address) {
		return nil, nil //nolint:nilnil // no listener
	}
	l, err := openListener(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; set a free address, or off", setting, address, err)
	}
	return l, nil
}

// openListener opens a listener for host:port or for a Unix socket, which only this user
// may use.
func openListener(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	file, unix := strings.CutPrefix(address, unixPrefix)
	if !unix {
		return config.Listen(ctx, "tcp", address)
	}
	if err := removeStaleSocket(ctx, file); err != nil {
		return nil, err
	}
	// On Linux the file gets the mode of the descriptor. If the mode were changed only after
	// Listen, others could connect before.
	var chmodErr error
	config.Control = func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), ownerOnly) })
	}
	l, err := config.Listen(ctx, "unix", file)
	if err != nil {
		return nil, err
	}
	if chmodErr == nil {
		return l, nil
	}
	if err := os.Chmod(file, ownerOnly); err != nil { // not Linux
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

const ownerOnly = 0o600

// removeStaleSocket removes the socket of a process that was killed. It returns an error
// if a process listens there, or if the file is not a socket.
func removeStaleSocket(ctx context.Context, file string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", file)
	if err == nil {
		return errors.Join(errors.New("another process listens there"), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	// A connection to a file that is not a socket is refused, too. Such a file is not ours.
	if info, err := os.Lstat(file); err != nil || info.Mode().Type() != os.ModeSocket {
		return errors.Join(errors.New("not a socket"), err)
	}
	return os.Remove(file)
}
