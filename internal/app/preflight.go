package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// An Outcome is the result of one check.
type Outcome string

// The outcomes of a check.
const (
	Passed Outcome = "ok"
	Warned Outcome = "warning"
	Failed Outcome = "failed"
	Info   Outcome = "info" // of what is not configured
)

// A Role is what a registry is to the bridges that are checked.
type Role string

// The roles of a registry.
const (
	RoleSource   Role = "source"
	RoleTarget   Role = "target"
	RoleRegistry Role = "registry" // in either direction
	RoleProcess  Role = "process"  // none: it is about what the process itself writes
)

// A Finding is what one check found.
type Finding struct {
	Registry string  `json:"registry"`
	Role     Role    `json:"role"`
	Check    string  `json:"check"`
	Outcome  Outcome `json:"outcome"`
	Detail   string  `json:"detail,omitempty"`
	Fix      string  `json:"fix,omitempty"` // what to do; empty if nothing has to be

	Unreachable bool `json:"-"` // the registry could not be reached
}

// findings gathers the checks of one registry in one role.
type findings struct {
	registry string
	role     Role
	all      []Finding
}

func (f *findings) pass(check, format string, args ...any) {
	f.add(Finding{Check: check, Outcome: Passed, Detail: fmt.Sprintf(format, args...)})
}

func (f *findings) warn(check, detail, fix string) {
	f.add(Finding{Check: check, Outcome: Warned, Detail: detail, Fix: fix})
}

func (f *findings) fail(check string, err error, fix string) {
	f.add(Finding{Check: check, Outcome: Failed, Detail: err.Error(), Fix: fix})
}

// inform reports what another configuration could do.
func (f *findings) inform(check, detail, fix string) {
	f.add(Finding{Check: check, Outcome: Info, Detail: detail, Fix: fix})
}

func (f *findings) add(one Finding) {
	one.Registry, one.Role = f.registry, f.role
	f.all = append(f.all, one)
}

// merge adds what others gathered.
func (f *findings) merge(others findings) {
	for _, one := range others.all {
		f.add(one)
	}
}

// unreachable is fail for a registry that is unreachable.
func (f *findings) unreachable(check string, err error, fix string) {
	f.fail(check, err, remedyOf(err, fix))
	f.all[len(f.all)-1].Unreachable = true
}

// A check tries one registry in one role.
type check struct {
	registry string
	role     Role
	try      func(ctx context.Context, f *findings)
}

// examine runs all checks at the same time, and returns what they found in their order.
func examine(ctx context.Context, timeout time.Duration, checks []check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lists := make([]findings, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		lists[i] = findings{registry: c.registry, role: c.role}
		running.Go(func() { c.try(ctx, &lists[i]) })
	}
	running.Wait()
	all := []Finding{}
	for _, l := range lists {
		all = append(all, l.all...)
	}
	return all
}

// checkPlaintext warns if a password crosses the network for everybody to read,
// which insecure: true permits.
func checkPlaintext(f *findings, tls *config.TLS, user string, servers []string, remedy string) {
	if tls == nil && user != "" && !config.Local(servers) {
		f.warn("tls", "insecure: true: the password of "+user+" crosses the network in plaintext", remedy)
	}
}

// remedyOfRight returns the remedy of an error of what requires a right. The right helps
// only if the registry refused us.
func remedyOfRight(err error, right string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "let the bridge read the file that the error names, or correct its path"
	case errors.Is(err, registry.ErrRefused):
		return right
	}
	return remedyOf(err, "this was not tried any further: see what the other checks of this registry say")
}

const noHTTP = "the port speaks no HTTP: name istiod's " + debug.MonitoringPort + " or, of Nacos, the HTTP port, to which 1000 is added for gRPC"

// remedyOf returns the remedy of an error of a connection by its kind, or else the given
// one. gRPC and the client of ZooKeeper report causes as text alone.
func remedyOf(err error, otherwise string) string {
	text := err.Error()
	for _, k := range []struct{ sign, remedy string }{
		{"first record does not look like a TLS handshake", "the port speaks plaintext: name the TLS port, or leave tls out"},
		{"certificate signed by unknown authority", "write the file of the authority that signed the server's certificate as tls.caFile"},
		{"certificate is valid for", "write the name that the certificate has as tls.serverName"},
		{"doesn't contain any IP SANs", "write the name that the certificate has as tls.serverName"},
		{"certificate has expired", "renew the server's certificate, or set the clock"},
		{"certificate required", "the server wants a client certificate: write tls.certFile and tls.keyFile"},
		{"error reading server preface", "the port speaks no gRPC: name istiod's 15010 or 15012 or, of Nacos, the HTTP port, to which 1000 is added"},
		{"to a wrong username or password too", "check username and passwordFile of the registry"},
		{"malformed HTTP", noHTTP},
		{"readLoopPeekFailLocked", noHTTP}, // net/http of a server that speaks first
		{"no accessToken", "the port is not Nacos': check host and port"},
		{"no such host", "the name is not known to DNS from here: check it, and its namespace"},
		{"connection refused", "nobody listens at that port: check the port, and whether the server runs"},
		{"check username and passwordFile", "check username and passwordFile of the registry"},
		{"the server refused them with code", "check user and passwordFile of the registry"},
		{": token: ", "the token file cannot be read: check tokenFile, and that it is mounted"},
	} {
		if strings.Contains(text, k.sign) {
			return k.remedy + "; " + otherwise
		}
	}
	return otherwise
}
