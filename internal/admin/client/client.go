// Package client asks a running bridge: its status API as package admin serves it, and its
// probes.
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

// A Client asks the status API of a running bridge.
type Client struct {
	Owner  string // of the bridge that is meant; empty: of any
	Remedy string // what to do if a bridge of another owner answers

	scheme, host string // of the URL
	token        string // that each request bears; empty: none
	http         http.Client
}

// Options say which running bridge is meant.
type Options struct {
	Address  string // of its status API; empty: as the configuration says
	Owner    string // empty: as the configuration says
	AnyOwner bool   // if no owner is given it may be any
	Timeout  time.Duration
}

// Find finds the running bridge by the options or by a configuration, of which only
// the address of the bridge has to be valid. A bridge of another owner does not answer.
// It remarks on settings that it cannot read.
func Find(file string, env config.Lookup, o Options, remark func(format string, args ...any)) (*Client, error) {
	access, wrong, err := config.ReadAccess(file, env)
	address, settings := o.Address, access.Admin
	if wrong := wrong.Under("admin"); len(wrong) > 0 {
		err, settings = wrong, config.Admin{}
	}
	if address == "" {
		if err != nil {
			return nil, err
		}
		if address = settings.Address; address == "" || address == "off" {
			return nil, cause.Usagef("%s: admin.address is off, so that the bridge has no status API; set it, or name another with --admin", file)
		}
		if unread := wrong.Under(""); len(unread) > 0 {
			remark("warning: %s; asking at %s, which is the default", unread.Error(), address)
		}
	}
	var secure *admin.Secure
	if settings.TLS != nil {
		secure = &admin.Secure{} // as the server's, which holds what only the server reads
	}
	if err := admin.CheckAddress(address, secure); err != nil {
		return nil, cause.Usagef("--admin: %w", err)
	}
	c, err := New(address, settings, o.Timeout)
	if err != nil {
		return nil, err
	}
	c.Owner, c.Remedy = o.Owner, "give --owner of the bridge that is meant"
	if o.Owner == "" && !o.AnyOwner {
		c.Owner = access.Owner
		c.Remedy = file + " says owner " + strconv.Quote(access.Owner) + "; name that bridge's configuration with --config, or give --owner"
	}
	return c, nil
}

// maxAnswer is more than the status of 100,000 services.
const maxAnswer = 256 << 20

// New returns a client for host:port or unix:/path, which speaks TLS and bears the
// token if the settings have them. It follows no redirect: nobody but the bridge is to see
// what it sends.
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

// Status returns all that the bridge knows and does.
func (c *Client) Status(ctx context.Context) (d admin.Document, err error) {
	return d, c.ask(ctx, http.MethodGet, "/api/v1/status", &d)
}

// Why returns the whole chain of a service.
func (c *Client) Why(ctx context.Context, service string) (w admin.Why, err error) {
	return w, c.ask(ctx, http.MethodGet, "/api/v1/services/"+url.PathEscape(service), &w)
}

// Holds returns the deletions that are held back.
func (c *Client) Holds(ctx context.Context) (p admin.Page[admin.Hold], err error) {
	return p, c.ask(ctx, http.MethodGet, "/api/v1/holds", &p)
}

// Events returns the events after that of a number.
func (c *Client) Events(ctx context.Context, after int64) (p admin.Page[admin.Event], err error) {
	return p, c.ask(ctx, http.MethodGet, "/api/v1/events?after="+strconv.FormatInt(after, 10), &p)
}

// Decide lets the deletions of a hold go ahead, or keeps them back: the action is approve
// or deny.
func (c *Client) Decide(ctx context.Context, action, hold string) (d admin.Decision, err error) {
	return d, c.ask(ctx, http.MethodPost, "/api/v1/holds/"+url.PathEscape(hold)+"/"+action, &d)
}

// Reload has the bridge read its configuration again.
func (c *Client) Reload(ctx context.Context) (r admin.Reload, err error) {
	return r, c.ask(ctx, http.MethodPost, "/api/v1/reload", &r)
}

func withoutRedirects(t http.RoundTripper) http.Client {
	return http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

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
	a, err := do(c.http, req, "admin.address")
	if err != nil {
		return err
	}
	if a.code != http.StatusOK && a.code != http.StatusUnprocessableEntity {
		return c.problem(req.URL.Path, a)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return cause.Unreachablef("%s does not answer as a bridge does: %w", c.host, err)
	}
	return nil
}

type answer struct {
	code   int
	status string
	body   []byte
}

// do sends a request to the running bridge, whose address is in a setting.
func do(client http.Client, req *http.Request, setting string) (answer, error) {
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
		return cause.Unreachablef("%s has no status API: %w; name admin.address, and not telemetry.address", c.host, err)
	case a.code == http.StatusNotFound, a.code == http.StatusConflict:
		return cause.New(cause.Findings, err)
	}
	return cause.Unreachablef("%s: %w", path, err)
}

// HealthOptions say which probe of the running bridge is asked.
type HealthOptions struct {
	Address string // of its probes; empty: as the configuration says
	Ready   bool   // ask /readyz in place of /livez
	Timeout time.Duration
}

// Health asks a probe of the running bridge and returns its answer. A configuration names
// the bridge unless the options do.
func Health(ctx context.Context, file string, env config.Lookup, o HealthOptions) (string, error) {
	address, err := probes(file, env, o)
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", cause.Usagef("telemetry.address %q: no probes there; set host:port, or name another with --telemetry", address)
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
		return "", cause.Usagef("telemetry address: %w", err)
	}
	a, err := do(withoutRedirects(http.DefaultTransport), req, "telemetry.address")
	text := strings.TrimSpace(string(a.body))
	if err == nil && a.code != http.StatusOK {
		return "", cause.New(cause.Findings, fmt.Errorf("%s: %s", probe, text))
	}
	return text, err
}

func probes(file string, env config.Lookup, o HealthOptions) (string, error) {
	if o.Address != "" {
		return o.Address, nil
	}
	access, wrong, err := config.ReadAccess(file, env)
	if wrong := wrong.Under("telemetry"); len(wrong) > 0 {
		err = wrong
	}
	return access.Telemetry.Address, err
}
