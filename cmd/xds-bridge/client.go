package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/admin"
)

// adminClient speaks to the status API of a running bridge.
type adminClient struct {
	host string // of the URL
	http http.Client
}

// maxAnswer is more than the status of 100,000 services.
const maxAnswer = 256 << 20

type clientOptions struct {
	admin   string
	timeout time.Duration
}

func clientFlags(cmd *cobra.Command, o *clientOptions) {
	cmd.Flags().StringVar(&o.admin, "admin", "", "host:port of the running bridge's status API; by default what the configuration says")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for an answer")
}

// client finds the running bridge by --admin or by the configuration.
func (c *cli) client(o clientOptions) (*adminClient, error) {
	address := o.admin
	if address == "" {
		cfg, err := c.load()
		if err != nil {
			return nil, err
		}
		if address = cfg.Admin.Address; address == "" || address == "off" {
			return nil, usage("%s: admin.address is off, so that the bridge has no status API; set it, or name another with --admin", c.file)
		}
	}
	if err := admin.CheckAddress(address); err != nil {
		return nil, usage("--admin: %w", err)
	}
	return newAdminClient(address, o.timeout), nil
}

// newAdminClient returns a client for host:port or unix:/path.
func newAdminClient(address string, timeout time.Duration) *adminClient {
	a := &adminClient{host: address, http: http.Client{Timeout: timeout}}
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		a.host = "localhost"
		a.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}
	}
	return a
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
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.host+path, request)
	if err != nil {
		return usage("--admin: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(admin.UserHeader, thisUser())
	resp, err := a.http.Do(req)
	if err != nil {
		return unreachable("%w; is the bridge running, and is this its admin.address?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return unreachable("read %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusUnprocessableEntity {
		return problem(resp, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return unreachable("%s does not answer as a bridge does: %w", a.host, err)
	}
	return nil
}

// problem says what an answer other than 200 means.
func problem(resp *http.Response, body []byte) error {
	var p admin.Problem
	if json.Unmarshal(body, &p) != nil || p.Error == "" {
		p.Error = resp.Status
	}
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusConflict {
		return exit{exitFindings, errors.New(p.Error)}
	}
	return unreachable("%s: %s", resp.Request.URL.Path, p.Error)
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
