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

// The limits of a request. A client that sends slowly, or for ever, costs a
// connection for that long and no more.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 60 * time.Second
	maxHeader     = 16 << 10
	maxBody       = 16 << 10
)

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

// CheckAddress refuses an address of the admin listener that others could
// reach, unless it is secured: the API can release holds.
func CheckAddress(address string, s *Secure) error {
	if _, unix := strings.CutPrefix(address, unixPrefix); unix || isOff(address) {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("admin.address %q: not host:port; set for example 127.0.0.1:9901", address)
	}
	if isLoopback(host) || s != nil {
		return nil
	}
	return fmt.Errorf("admin.address %q: only loopback is accepted without admin.tls and admin.tokenFile; "+
		"set both, or set 127.0.0.1:%s and reach it by kubectl port-forward or ssh -L", address, port)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// A requestCheck returns the status and the reason of a request that is refused; 0: it is not.
type requestCheck func(r *http.Request) (code int, reason string)

// checkHost refuses requests that were not meant for this host by name: a page
// in a browser whose own name was made to point here (DNS rebinding) says
// another.
func checkHost(r *http.Request) (int, string) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if isLoopback(host) {
		return 0, ""
	}
	return http.StatusMisdirectedRequest, "the Host header names no loopback address; call the API as 127.0.0.1 or localhost"
}

func checkOrigin(r *http.Request) (int, string) {
	if http.NewCrossOriginProtection().Check(r) == nil {
		return 0, ""
	}
	return http.StatusForbidden, "requests that pages of other origins make are refused"
}

// checkJSON refuses what changes something in another form: a form on a page of
// another origin cannot be sent as JSON without asking first.
func checkJSON(r *http.Request) (int, string) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Method != http.MethodPost || kind == "application/json" {
		return 0, ""
	}
	return http.StatusUnsupportedMediaType, "send it with Content-Type: application/json"
}

// OwnerHeader is where a caller says which bridge it means, by its owner.
const OwnerHeader = "X-Xds-Bridge-Owner"

func (s *Server) checkOwner(r *http.Request) (int, string) {
	if asked, is := r.Header.Get(OwnerHeader), s.current().owner; asked != "" && asked != is {
		return http.StatusPreconditionFailed, "the bridge that runs here is of owner " + strconv.Quote(is)
	}
	return 0, ""
}

// plain answers the requests that no check refuses. It answers every path as it was asked
// for and never redirects, which a ServeMux does for paths that are not clean. It also sets
// the headers that keep a browser from reading an answer as something else.
func withChecks(next http.Handler, checks ...requestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		if asked := r.URL.EscapedPath(); !strings.HasPrefix(asked, "/") || path.Clean(asked) != asked {
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

// Secure protects a status API that other machines may reach. Both are read each time, so
// that files may be rotated.
type Secure struct {
	Certificate func() (*tls.Certificate, error)
	Token       func() (string, error) // that every request has to bear
}

func (s *Secure) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() },
	}
}

// checkToken refuses requests without the token, which no page in a browser knows. It does
// not say what is wrong with a token.
func (s *Secure) checkToken(r *http.Request) (int, string) {
	token, err := s.Token()
	given, bears := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	want, have := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	if err != nil || token == "" || !bears || subtle.ConstantTimeCompare(want[:], have[:]) != 1 {
		return http.StatusUnauthorized, "send the token of admin.tokenFile as Authorization: Bearer"
	}
	return 0, ""
}

// unixPrefix begins an address that is a socket in the file system.
const unixPrefix = "unix:"

func isOff(address string) bool { return address == "" || address == "off" }

// listen opens a listener, nil for an address that leaves it out.
func listen(ctx context.Context, setting, address string) (net.Listener, error) {
	if isOff(address) {
		return nil, nil //nolint:nilnil // a listener that was left out
	}
	l, err := openListener(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; name a free address, or off", setting, address, err)
	}
	return l, nil
}

func openListener(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	file, unix := strings.CutPrefix(address, unixPrefix)
	if !unix {
		return config.Listen(ctx, "tcp", address)
	}
	if err := removeStaleSocket(ctx, file); err != nil {
		return nil, err
	}
	// Linux gives the file the mode of the descriptor. With a chmod after Listen
	// others could connect in between.
	var late error
	config.Control = func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { late = syscall.Fchmod(int(fd), ownerOnly) })
	}
	l, err := config.Listen(ctx, "unix", file)
	if err != nil {
		return nil, err
	}
	if late == nil {
		return l, nil
	}
	if err := os.Chmod(file, ownerOnly); err != nil { // another system
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

const ownerOnly = 0o600

// removeStaleSocket removes a socket that a process left behind which was killed.
func removeStaleSocket(ctx context.Context, file string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", file)
	if err == nil {
		return errors.Join(errors.New("another process listens there"), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	// A file that is no socket refuses as well, and is somebody's.
	if info, err := os.Lstat(file); err != nil || info.Mode().Type() != os.ModeSocket {
		return errors.Join(errors.New("is no socket"), err)
	}
	return os.Remove(file)
}
