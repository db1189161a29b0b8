package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// A login holds the access token of a client's user, and renews it before it expires.
type login struct {
	client *Client

	turn chan struct{} // holds a value while a goroutine renews the token

	mu      sync.Mutex
	access  string
	expires time.Time
	renewed time.Time
	tried   time.Time
	issuer  int // index of the server that issued the last token
	lastErr error
	denied  string // the last new token with which a request was denied again
	denials int    // number of such tokens in a row
}

// LoginState describes the login of a Client.
type LoginState struct {
	Username string // empty: there is no login
	Expires  time.Time
	Err      error // of the last attempt that was not cancelled; nil: it succeeded
}

// loginPaths returns the path of both major versions, and that of version 3, as measured with
// 2.2.4 and 3.1.
func loginPaths() []string { return []string{"/v1/auth/login", "/v3/auth/user/login"} }

func newLogin(c *Client) *login { return &login{client: c, turn: make(chan struct{}, 1)} }

// send sends a request, and returns the status and a limited number of bytes of the answer.
// The HTTP client is for one request, because the dial of a shared one would outlive the
// context.
func (l *login) send(req *http.Request, most int64) (status int, body []byte, err error) {
	ctx := req.Context()
	o := l.client.opts
	bound := func(dial tlsfile.Dialer) tlsfile.Dialer {
		return func(_ context.Context, network, address string) (net.Conn, error) { return dial(ctx, network, address) }
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: bound(o.Dialer)}
	if o.TLS != nil {
		transport.DialTLSContext = bound(tlsfile.Secure(o.Dialer, o.TLS))
	}
	client := &http.Client{
		Transport: transport,
		// A redirect would send the password to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("request: %w", err)
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(res.Body, most)); err != nil {
		return res.StatusCode, nil, fmt.Errorf("answer: %w", err)
	}
	return res.StatusCode, body, nil
}

func (l *login) token() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.access
}

// first logs in if there is a user and no token.
func (l *login) first(ctx context.Context) error {
	if l.client.opts.Username == "" || l.token() != "" {
		return nil
	}
	return l.login(ctx)
}

// renewals is the wait between logins after denied requests: a user without a right is denied
// with every token.
func renewals() registry.Backoff { return registry.Backoff{Min: time.Second, Max: time.Minute} }

// renew logs in after a request with a token was denied, and reports whether there is another
// token now. It logs in at most once a second, and less often while new tokens are denied.
func (l *login) renew(ctx context.Context, denied string) bool {
	if l.client.opts.Username == "" {
		return false
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return false
	}
	l.mu.Lock()
	newer, recent := l.access != denied, time.Since(l.tried) < renewals().After(l.denials)
	l.mu.Unlock()
	return newer || !recent && l.login(ctx) == nil
}

// repeated handles the result of a request that was repeated with a new token.
func (l *login) repeated(token string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.denied, l.denials = "", 0
	case errors.Is(err, ErrDenied) && l.denied != token:
		l.denied = token
		l.denials++
	}
}

func (l *login) state() LoginState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return LoginState{Username: l.client.opts.Username, Expires: l.expires, Err: l.lastErr}
}

// keep renews the token after nine tenths of its validity, until ctx ends.
func (l *login) keep(ctx context.Context) {
	for ctx.Err() == nil {
		l.mu.Lock()
		wait := time.Until(l.expires) - time.Until(l.expires)/10
		has := l.access != ""
		l.mu.Unlock()
		if !has || wait < time.Second {
			wait = time.Second
		}
		registry.Sleep(ctx, wait)
		l.mu.Lock()
		due := l.access != "" && time.Until(l.expires) < l.expires.Sub(l.renewed)/5
		l.mu.Unlock()
		if !due {
			continue
		}
		if err := l.login(ctx); err != nil && ctx.Err() == nil {
			l.client.opts.Log.Warn("nacos login not renewed, retrying", "err", err)
		}
	}
}

// login requests a token from the servers in turn, first from the one that issued the last
// token. It stops at a server that refuses the password.
func (l *login) login(ctx context.Context) error {
	err := l.ask(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried = time.Now()
	deadline, limited := ctx.Deadline()
	cancelled := ctx.Err() != nil || limited && !l.tried.Before(deadline)
	if !cancelled || err == nil || l.lastErr == nil { // the error of a cancelled attempt explains less than an answer
		l.lastErr = err
	}
	return err
}

func (l *login) ask(ctx context.Context) error {
	password, err := l.client.opts.Password()
	if err != nil {
		return fmt.Errorf("nacos login: passwordFile: %w", err)
	}
	form := url.Values{"username": {l.client.opts.Username}, "password": {strings.TrimRight(password, "\r\n")}}
	l.mu.Lock()
	first := l.issuer
	l.mu.Unlock()
	for i := range l.client.servers {
		n := (first + i) % len(l.client.servers)
		began := time.Now()
		err = l.loginAt(ctx, l.client.servers[n], form)
		l.client.opts.Observe(Observation{Op: OpLogin, Took: time.Since(began), Err: err})
		if err == nil {
			l.mu.Lock()
			l.issuer = n
			l.mu.Unlock()
			return nil
		}
		if errors.Is(err, ErrDenied) {
			return err
		}
	}
	return err
}

func (l *login) loginAt(ctx context.Context, s server, form url.Values) error {
	var err error
	for _, address := range s.addresses(loginPaths()) {
		var status int
		if status, err = l.request(ctx, address, form); err == nil {
			return nil
		}
		if status != http.StatusNotFound && status != http.StatusGone {
			return fmt.Errorf("nacos login as %q at %s: %w", l.client.opts.Username, s.bases[0], err)
		}
	}
	return fmt.Errorf("nacos login as %q: %w: no login at %s; "+
		"add the context path to servers, as in http://host:port/path",
		l.client.opts.Username, err, strings.Join(s.bases, " or "))
}

func (l *login) request(ctx context.Context, address string, form url.Values) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, l.client.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	const most = 64 << 10
	status, body, err := l.send(req, most)
	if err != nil {
		return status, err
	}
	text := clip(strings.TrimSpace(string(body)))
	switch status {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return status, fmt.Errorf("%w: status %d: %q: check username and passwordFile of the registry",
			ErrDenied, status, text)
	case http.StatusInternalServerError: // of version 3 for a wrong password, of version 2 for a wrong name
		return status, fmt.Errorf("status %d: %q; Nacos answers this to a wrong username or password too", status, text)
	default: // the password is not refused, so that another server may accept it
		return status, fmt.Errorf("status %d: %q", status, text)
	}
	token, validity, err := readLogin(body)
	if err != nil {
		return status, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.access, l.renewed, l.expires = token, time.Now(), time.Now().Add(validity)
	return status, nil
}

// The validity of a token by default, and at most.
const (
	defaultValidity = time.Hour
	maxValidity     = 30 * 24 * time.Hour
)

func readLogin(body []byte) (string, time.Duration, error) {
	var answer struct {
		AccessToken string `json:"accessToken"`
		TokenTTL    int64  `json:"tokenTtl"` // seconds
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.AccessToken == "" {
		return "", 0, errors.New("the answer has no accessToken; check that this is a Nacos server")
	}
	validity := defaultValidity
	if answer.TokenTTL > 0 {
		validity = time.Duration(min(answer.TokenTTL, int64(maxValidity/time.Second))) * time.Second
	}
	return answer.AccessToken, validity, nil
}
