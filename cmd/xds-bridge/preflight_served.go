package main

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

// checkServed tries whether the address for istiod is free or this bridge's own
// and whether what is served can be kept, and tells what the address shows to
// others.
func checkServed(cfg *config.Config, at end, records *servedRecords) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		f.listens(ctx, cfg, at)
		f.pass("configSources", "%s", sourceAddress(at.listen))
		for _, e := range cfg.Exposed(at.registry, at.listen) {
			f.warn("clients", e.What, e.Remedy)
		}
		records.check(ctx, f)
	}
}

// listens tries the address, and asks who holds it only if it is taken.
func (f *findings) listens(ctx context.Context, cfg *config.Config, at end) {
	const check = "listen"
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.listen)
	if err == nil {
		_ = l.Close()
		f.pass(check, "%s is free", at.listen)
		return
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		f.fail(check, err, "change listen of the bridge to an address that this machine has and this user may open")
		return
	}
	if unknown := servedByRunning(ctx, cfg, at); unknown != nil {
		f.fail(check, fmt.Errorf("%w; it is not known to be this bridge's: %w", err, unknown), "change listen of the bridge, or end the other process that holds the port")
		return
	}
	f.pass(check, "%s is held by the running bridge of owner %s", at.listen, cfg.Owner)
}

// askRunning is how long a bridge on this machine may take to answer.
const askRunning = 3 * time.Second

// servedByRunning returns nil if the running bridge of the configuration serves
// a mesh at an address, else why that is not so or not known.
func servedByRunning(ctx context.Context, cfg *config.Config, at end) error {
	if cfg.Admin.Address == "" || cfg.Admin.Address == "off" {
		return errors.New("admin.address is off")
	}
	a := newAdminClient(cfg.Admin.Address, askRunning)
	a.owner, a.remedy = cfg.Owner, "a bridge of another owner runs"
	if cfg.Admin.TLS != nil {
		if err := a.secure(cfg.Admin); err != nil {
			return err
		}
	}
	var d admin.Document
	if err := a.get(ctx, "/api/v1/status", &d); err != nil {
		return err
	}
	if !slices.ContainsFunc(d.Targets, func(t admin.TargetPeer) bool { return t.Name == at.String() }) {
		return fmt.Errorf("the bridge at %s serves nothing there", cfg.Admin.Address)
	}
	return nil
}

// sourceAddress says what names an address in istiod's configSources.
func sourceAddress(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return "istiod names it as address: xds://" + listen
	}
	return "istiod names it as address: xds://HOST:" + port + ", where HOST is a name of the bridge's Service or of this machine"
}
