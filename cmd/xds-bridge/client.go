package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// adminClient speaks to the status API of a running bridge.
type adminClient struct {
	scheme, host string // of the URL
	token        string // that each request bears; empty: none
	owner        string // of the bridge that is meant; empty: of any
	remedy       string // what to do where another answers
	transport    *http.Transport
	http         http.Client
}

// secured returns how the status API is kept from others, nil where only this
// machine can reach it.
func secured(a config.Admin) *admin.Secure {
	if a.TLS == nil {
		return nil
	}
	return &admin.Secure{
		Certificate: func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.TLS.CertFile, a.TLS.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("admin.tls: %w", err)
			}
			return &pair, nil
		},
		Token: func() (string, error) {
			s, err := config.ReadSecret(a.TokenFile)
			return s.Reveal(), err
		},
	}
}

// maxAnswer is more than the status of 100,000 services.
const maxAnswer = 256 << 20

type clientOptions struct {
	admin   string
	owner   string // empty: as the configuration says
	any     bool   // with no owner given it may be any
	timeout time.Duration
}

func clientFlags(cmd *cobra.Command, o *clientOptions) {
	cmd.Flags().StringVar(&o.admin, "admin", "", "host:port of the running bridge's status API; by default what the configuration says")
	cmd.Flags().StringVar(&o.owner, "owner", "", "the owner of the bridge that is asked; by default what the configuration says")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for an answer")
}

// sameBridge returns the flags by which another command asks the same bridge,
// with a space before each.
func (c *cli) sameBridge(o clientOptions) string {
	file := c.file
	if file == defaultConfig {
		file = ""
	}
	var flags strings.Builder
	for _, f := range []struct{ name, value string }{{"-f", file}, {"--admin", o.admin}, {"--owner", o.owner}} {
		if f.value != "" {
			flags.WriteString(" " + f.name + " " + shellWord(f.value))
		}
	}
	return flags.String()
}

// shellWord returns a text as a shell takes it for one word.
func shellWord(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-:@%+=,", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// client finds the running bridge by --admin or by the configuration, of which
// no more has to be right than what says where the bridge is. A bridge of
// another owner does not answer it.
func (c *cli) client(o clientOptions) (*adminClient, error) {
	access, err := config.ReadAccess(c.file, c.env)
	address, how := o.admin, access.Admin
	if wrong := access.Faults.Under("admin"); err == nil && len(wrong) > 0 {
		err, how = wrong, config.Admin{}
	}
	if address == "" {
		if err != nil {
			return nil, err
		}
		if address = how.Address; address == "" || address == "off" {
			return nil, usage("%s: admin.address is off, so that the bridge has no status API; set it, or name another with --admin", c.file)
		}
		if unread := access.Faults.Under(""); len(unread) > 0 {
			c.note("warning: %s; asking at %s, which is the default", unread.Error(), address)
		}
	}
	if err := admin.CheckAddress(address, secured(how)); err != nil {
		return nil, usage("--admin: %w", err)
	}
	a := newAdminClient(address, o.timeout)
	a.owner = o.owner
	a.remedy = "give --owner of the bridge that is meant"
	if o.owner == "" && !o.any {
		a.owner = access.Owner
		a.remedy = c.file + " says owner " + strconv.Quote(access.Owner) + "; name that bridge's configuration with --config, or give --owner"
	}
	if how.TLS == nil {
		return a, nil
	}
	return a, a.secure(how)
}

// secure has the client speak TLS and bear the token.
func (a *adminClient) secure(how config.Admin) error {
	token, err := config.ReadSecret(how.TokenFile)
	if err != nil {
		return usage("admin.tokenFile: %w", err)
	}
	expected, err := tlsfile.Files{CA: how.TLS.CAFile, ServerName: how.TLS.ServerName}.Config()
	if err != nil {
		return usage("admin.%w", err)
	}
	a.scheme, a.token, a.transport.TLSClientConfig = "https", token.Reveal(), expected
	return nil
}

// newAdminClient returns a client for host:port or unix:/path. It follows no
// redirect: nobody but the bridge is to see what it sends.
func newAdminClient(address string, timeout time.Duration) *adminClient {
	a := &adminClient{scheme: "http", host: address, transport: &http.Transport{}}
	a.http = straight(a.transport)
	a.http.Timeout = timeout
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		a.host = "localhost"
		a.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return a
}

// straight returns a client that goes nowhere but where it is told to.
func straight(t http.RoundTripper) http.Client {
	return http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get reads a document of the API.
func (a *adminClient) get(ctx context.Context, path string, into any) error {
	return a.ask(ctx, http.MethodGet, path, nil, into)
}

// post has something done, as the request says, and reads the answer.
func (a *adminClient) post(ctx context.Context, path string, request, into any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	return a.ask(ctx, http.MethodPost, path, bytes.NewReader(body), into)
}

func (a *adminClient) ask(ctx context.Context, method, path string, request io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, a.scheme+"://"+a.host+path, request)
	if err != nil {
		return usage("--admin: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	req.Header.Set(admin.UserHeader, thisUser())
	if a.owner != "" {
		req.Header.Set(admin.OwnerHeader, a.owner)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return unreachable("%w; is the bridge running, and is this its admin.address?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return unreachable("read %s: %w", path, err)
	}
	if resp.StatusCode == http.StatusPreconditionFailed {
		return usage("%s: %w; %s", a.host, problemOf(resp, body), a.remedy)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusUnprocessableEntity {
		return a.problem(resp, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return unreachable("%s does not answer as a bridge does: %w", a.host, err)
	}
	return nil
}

// problem says what an answer other than 200 means.
func (a *adminClient) problem(resp *http.Response, body []byte) error {
	err := problemOf(resp, body)
	if resp.StatusCode == http.StatusNotFound && !json.Valid(body) {
		return unreachable("%s has no status API: %w; name admin.address, and not telemetry.address", a.host, err)
	}
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusConflict {
		return exit{exitFindings, err}
	}
	return unreachable("%s: %w", resp.Request.URL.Path, err)
}

// problemOf returns what an answer says is wrong.
func problemOf(resp *http.Response, body []byte) error {
	var p admin.Problem
	if json.Unmarshal(body, &p) != nil || p.Error == "" {
		p.Error = resp.Status
	}
	return errors.New(p.Error)
}

// thisUser says who runs the command, for the record.
func thisUser() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
