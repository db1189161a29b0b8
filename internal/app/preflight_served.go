package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
)

// checkServed tries whether the address for istiod is free or this bridge's own, and
// whether records can be kept. It warns of what others may read at the address.
func checkServed(cfg *config.Config, at targetKey, records *servedRecords) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		running := checkListen(ctx, f, cfg, at)
		switch {
		case cfg.Registries[at.registry].Istiod.Address != "":
			f.pass("configSources", "%s", sourceAddress(at.listen))
			checkIstiod(ctx, f, cfg, at, running)
		case running == nil:
		case len(running.Readers) > 0:
			f.pass("data planes", "%s", running.ReadBy())
		default:
			f.warn("data planes", running.ReadBy(), "have data planes name this address; docs/data-planes.md says where")
		}
		for _, e := range cfg.Exposed(at.registry, at.listen) {
			f.warn("clients", e.What, e.Remedy)
		}
		records.check(ctx, f)
	}
}

// checkListen tries the address, and asks who holds it only if it is in use. It
// returns the target as the running bridge reports it, if that holds the address.
func checkListen(ctx context.Context, f *findings, cfg *config.Config, at targetKey) *admin.TargetStatus {
	const check = "listen"
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.listen)
	if err == nil {
		_ = l.Close()
		f.pass(check, "%s is free", at.listen)
		return nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		f.fail(check, err, "change listen of the bridge to an address that this machine has and this user may open")
		return nil
	}
	target, unknown := runningTarget(ctx, cfg, at)
	if unknown != nil {
		f.fail(check, fmt.Errorf("%w; it is not known to be this bridge's: %w", err, unknown), "change listen of the bridge, or end the other process that holds the port")
		return nil
	}
	f.pass(check, "%s is held by the running bridge of owner %s", at.listen, cfg.Owner)
	return target
}

// checkIstiod reports whether there is an istiod for what is served: one that reads it
// or, if no bridge runs yet, one that is reachable.
func checkIstiod(ctx context.Context, f *findings, cfg *config.Config, at targetKey, running *admin.TargetStatus) {
	const check, fix = "istiod", "start istiod, and let its configSources name the address above"
	address := cfg.Registries[at.registry].Istiod.Address
	switch {
	case running != nil && len(running.Readers) > 0:
		f.pass(check, "%s", running.ReadBy())
	case running != nil:
		f.warn(check, running.ReadBy(), fix)
	default:
		if err := dial(ctx, address); err != nil {
			f.warn(check, err.Error(), "check istiod.address; an istiod that starts before the bridge ends, and starts again")
			return
		}
		f.pass(check, "%s is reachable; what it reads is seen once the bridge runs", address)
	}
}

// statusTimeout is how long a bridge on this machine may take to answer.
const statusTimeout = 10 * time.Second

// runningTarget returns a target as the running bridge of the configuration reports it;
// the error is why it does not, or why that is not known.
func runningTarget(ctx context.Context, cfg *config.Config, at targetKey) (*admin.TargetStatus, error) {
	if cfg.Admin.Address == "" || cfg.Admin.Address == "off" {
		return nil, errors.New("admin.address is off")
	}
	a, err := newClient(cfg.Admin.Address, cfg.Admin, statusTimeout)
	if err != nil {
		return nil, err
	}
	a.Owner, a.remedy = cfg.Owner, "a bridge of another owner runs"
	d, err := a.Status(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(d.Targets, func(t admin.TargetStatus) bool { return t.Name == at.String() })
	if i < 0 {
		return nil, fmt.Errorf("the bridge at %s serves nothing there", cfg.Admin.Address)
	}
	if slices.ContainsFunc(d.Conditions, func(c admin.Condition) bool { return c.Registry == at.String() && c.Name == admin.OwnerConflict }) {
		return nil, fmt.Errorf("the bridge at %s may not write there", cfg.Admin.Address)
	}
	return &d.Targets[i], nil
}

// sourceAddress says how istiod's configSources name an address.
func sourceAddress(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return "istiod names it as address: xds://" + listen
	}
	return "istiod names it as address: xds://HOST:" + port + ", where HOST is a name of the bridge's Service or of this machine"
}
