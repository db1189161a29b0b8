// Package client calls the API and the probes of a running bridge, which package admin
// serves.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// A Client calls the API of a running bridge. It is safe for concurrent use if its fields
// do not change.
type Client struct {
	Owner  string // only a bridge of this owner answers; empty: any
	Remedy string // what to do if a bridge of another owner runs there

	scheme, host string // of the URL
	token        string // of each request; empty: none
	http         http.Client
}

// Options select a running bridge.
type Options struct {
	Address  string // of its API; empty: from the configuration
	Owner    string // empty: from the configuration, unless AnyOwner is set
	AnyOwner bool   // without Owner, a bridge of any owner may answer
	Timeout  time.Duration
}

// Find returns a client of the running bridge that the options or a configuration select.
// Of the configuration, only the address of the bridge must be valid. Find passes a warning
// about settings that it cannot read to remark.
func Find(file string, env config.Lookup, o Options, remark func(format string, args ...any)) (*Client, error) {
	access, invalid, err := config.ReadAccess(file, env)
	address, settings := o.Address, access.Admin
	if errs := invalid.Under("admin"); len(errs) > 0 {
		err, settings = errs, config.Admin{}
	}
	if address == "" {
		if err != nil {
			return nil, err
		}
		if address = settings.Address; address == "" || address == "off" {
			return nil, cause.Usagef("%s: admin.address is off, so the bridge has no status API; "+
				"set admin.address, or set the address of another bridge with --admin", file)
		}
		if unread := invalid.Under(""); len(unread) > 0 {
			remark("warning: %s; using the default address %s", unread.Error(), address)
		}
	}
	var secure *admin.Secure
	if settings.TLS != nil {
		secure = &admin.Secure{} // only the server needs its contents
	}
	if err := admin.CheckAddress(address, secure); err != nil {
		return nil, cause.Usagef("--admin: %w", err)
	}
	c, err := New(address, settings, o.Timeout)
	if err != nil {
		return nil, err
	}
	c.Owner, c.Remedy = o.Owner, "set --owner to the owner of the bridge that you mean"
	if o.Owner == "" && !o.AnyOwner {
		c.Owner = access.Owner
		c.Remedy = file + " has owner " + strconv.Quote(access.Owner) +
			"; use that bridge's configuration with --config, or set --owner"
	}
	return c, nil
}

// maxAnswer is the limit of an answer. The status of 100,000 services is shorter.
const maxAnswer = 256 << 20

// New returns a client for host:port or unix:/path. It uses the TLS and the token of the
// settings, if there are any. It does not follow redirects, so that only the bridge receives
// the token.
func New(address string, settings config.Admin, timeout time.Duration) (*Client, error) {
	transport := &http.Transport{}
	c := &Client{scheme: "http", host: address, http: withoutRedirects(transport)}
	c.http.Timeout = timeout
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		c.host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	if settings.TLS == nil {
		return c, nil
	}
	token, err := config.ReadSecret(settings.TokenFile)
	if err != nil {
		return nil, cause.Usagef("admin.tokenFile: %w", err)
	}
	c.scheme, c.token = "https", token.Reveal()
	transport.TLSClientConfig, err = tlsfile.Files{CA: settings.TLS.CAFile, ServerName: settings.TLS.ServerName}.Config()
	if err != nil {
		return nil, cause.Usagef("admin.%w", err)
	}
	return c, nil
}

// Status returns the state of the bridge.
func (c *Client) Status(ctx context.Context) (d admin.Document, err error) {
	return d, c.ask(ctx, http.MethodGet, "/api/v1/status", &d)
}

// Why returns everything that the bridge knows of a service.
func (c *Client) Why(ctx context.Context, service string) (w admin.Why, err error) {
	return w, c.ask(ctx, http.MethodGet, "/api/v1/services/"+url.PathEscape(service), &w)
}

// Holds returns the holds of all targets.
func (c *Client) Holds(ctx context.Context) (p admin.Page[admin.Hold], err error) {
	return p, c.ask(ctx, http.MethodGet, "/api/v1/holds", &p)
}

// Events returns the events with a higher number than after.
func (c *Client) Events(ctx context.Context, after int64) (p admin.Page[admin.Event], err error) {
	return p, c.ask(ctx, http.MethodGet, "/api/v1/events?after="+strconv.FormatInt(after, 10), &p)
}

// Decide approves or denies a hold. The action is approve or deny.
func (c *Client) Decide(ctx context.Context, action, hold string) (d admin.Decision, err error) {
	return d, c.ask(ctx, http.MethodPost, "/api/v1/holds/"+url.PathEscape(hold)+"/"+action, &d)
}

// Reload makes the bridge read its configuration again.
func (c *Client) Reload(ctx context.Context) (r admin.Reload, err error) {
	return r, c.ask(ctx, http.MethodPost, "/api/v1/reload", &r)
}

// withoutRedirects returns an HTTP client that does not follow redirects.
func withoutRedirects(t http.RoundTripper) http.Client {
	stop := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return http.Client{Transport: t, CheckRedirect: stop}
}

// ask sends a request and decodes the answer into a value. It returns the problem of the
// answer as an error with its cause.
func (c *Client) ask(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.scheme+"://"+c.host+path, http.NoBody)
	if err != nil {
		return cause.Usagef("--admin: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set(admin.UserHeader, audit.User())
	if c.Owner != "" {
		req.Header.Set(admin.OwnerHeader, c.Owner)
	}
	a, err := send(c.http, req, "admin.address")
	if err != nil {
		return err
	}
	if a.code != http.StatusOK && a.code != http.StatusUnprocessableEntity {
		return c.problem(req.URL.Path, a)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return cause.Unreachablef("%s: the answer is not that of a bridge: %w", c.host, err)
	}
	return nil
}

// An answer is a response with its body.
type answer struct {
	code   int
	status string
	body   []byte
}

// send sends a request to the running bridge. The setting with its address is for the
// remedy of an error.
func send(client http.Client, req *http.Request, setting string) (answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, cause.Unreachablef("%w; is the bridge running, and is this its %s?", err, setting)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, cause.Unreachablef("read %s: %w", req.URL.Path, err)
	}
	return answer{resp.StatusCode, resp.Status, body}, nil
}

// problem returns the error of an answer, with its cause.
func (c *Client) problem(path string, a answer) error {
	p := admin.Problem{}
	if json.Unmarshal(a.body, &p) != nil || p.Error == "" {
		p.Error = a.status
	}
	err := errors.New(p.Error)
	switch {
	case a.code == http.StatusPreconditionFailed:
		return cause.Usagef("%s: %w; %s", c.host, err, c.Remedy)
	case a.code == http.StatusNotFound && !json.Valid(a.body):
		return cause.Unreachablef("%s has no status API: %w; use admin.address instead of telemetry.address", c.host, err)
	case a.code == http.StatusNotFound, a.code == http.StatusConflict:
		return cause.New(cause.Findings, err)
	}
	return cause.Unreachablef("%s: %w", path, err)
}

// HealthOptions select a probe of a running bridge.
type HealthOptions struct {
	Address string // of its probes; empty: from the configuration
	Ready   bool   // /readyz instead of /livez
	Timeout time.Duration
}

// Health returns the answer of a probe of the running bridge that the options or a
// configuration select. A probe that fails is an error with the cause Findings.
func Health(ctx context.Context, file string, env config.Lookup, o HealthOptions) (string, error) {
	address, err := probeAddress(file, env, o)
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", cause.Usagef("telemetry.address %q: no probes there; "+
			"set host:port, or another address with --telemetry", address)
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	probe := "/livez"
	if o.Ready {
		probe = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+probe, nil)
	if err != nil {
		return "", cause.Usagef("telemetry.address: %w", err)
	}
	a, err := send(withoutRedirects(http.DefaultTransport), req, "telemetry.address")
	text := strings.TrimSpace(string(a.body))
	if err == nil && a.code != http.StatusOK {
		return "", cause.New(cause.Findings, fmt.Errorf("%s: %s", probe, text))
	}
	return text, err
}

// probeAddress returns the address of the probes, from the options or the configuration.
func probeAddress(file string, env config.Lookup, o HealthOptions) (string, error) {
	if o.Address != "" {
		return o.Address, nil
	}
	access, invalid, err := config.ReadAccess(file, env)
	if errs := invalid.Under("telemetry"); len(errs) > 0 {
		err = errs
	}
	return access.Telemetry.Address, err
}
