package app

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// checkZooKeeper tries a ZooKeeper ensemble by a node that is written and
// deleted.
func checkZooKeeper(cfg *config.Config, at targetKey, target *zookeeper.Target) func(context.Context, *findings) {
	z := cfg.Registries[at.registry].ZooKeeper
	return func(ctx context.Context, f *findings) {
		r, err := target.Check(ctx)
		if err != nil {
			f.away("reachable", err, "check zookeeper.servers, tls, and that the ensemble has a quorum")
			return
		}
		f.pass("reachable", "%s", r.Server)
		f.checkPlaintext(z.TLS, z.User, z.Servers, "write tls: {caFile: …}, where the ensemble has a secure port")
		if r.Version != "" {
			f.pass("version", "%s", r.Version)
		} else {
			f.warn("version", "not told", "add srvr to 4lw.commands.whitelist of the server, if you want to see it")
		}
		if r.Granted == r.Asked {
			f.pass("session", "%s", r.Granted)
		} else {
			f.warn("session", fmt.Sprintf("%s was asked for and %s granted", r.Asked, r.Granted), "set zookeeper.sessionTimeout within what the server grants")
		}
		if r.Read != nil {
			f.fail("list", r.Read, "let our user read the root of each format")
		} else {
			f.pass("list", "the folders of all formats")
		}
		if r.Write != nil {
			user := cmp.Or(z.User, "anybody, since no user is set")
			f.fail("write", r.Write, "let "+user+" create and delete under /xds-bridge and the root of each format")
			return
		}
		f.pass("write", "a node was made and deleted in %s", r.Took.Round(time.Millisecond))
		f.checkClock(r.Skew)
		f.checkOwner(ctx, cfg, at, target)
	}
}

// askOwner is how long it may take to look who wrote there before.
const askOwner = 3 * time.Second

// checkOwner tells what keeps run from writing: another process of the owner, or
// bridges of ours that wrote as another owner.
func (f *findings) checkOwner(ctx context.Context, cfg *config.Config, at targetKey, target *zookeeper.Target) {
	const check = "owner"
	ctx, cancel := context.WithTimeout(ctx, askOwner)
	defer cancel()
	who, err := target.Alive(ctx, cfg.Owner)
	switch {
	case err != nil:
		f.warn(check, "it cannot be seen who writes as "+cfg.Owner+": "+err.Error(), "let our user read /xds-bridge/"+cfg.Owner)
		return
	case who != "" && cfg.Replicas.Shared():
		f.pass(check, "%s writes as %s, as one of its replicas may", who, cfg.Owner)
		return
	case who != "":
		if _, unknown := runningTarget(ctx, cfg, at); unknown == nil {
			f.pass(check, "%s, the running bridge, writes as %s", who, cfg.Owner)
			return
		}
		f.warn(check, who+" writes as "+cfg.Owner, "if it is not the bridge of this configuration give this one another owner; beside it run ends with 2")
		return
	}
	switch err := target.Admit(ctx); {
	case err != nil:
		f.fail(check, err, "put the owner back, or adopt, release or purge what the earlier one left")
	case ctx.Err() != nil:
		f.warn(check, "replicas may have written last as "+cfg.Owner, "end them, or give this configuration their replicas.lease; run waits whether they have gone")
	default:
		f.pass(check, "nobody else writes as %s", cfg.Owner)
	}
}

func (z zookeeperSource) check(ctx context.Context, f *findings) {
	r, err := z.Check(ctx)
	switch {
	case r.State.Session == 0 && err != nil:
		f.away("reachable", err, "check zookeeper.servers, tls, and that the ensemble has a quorum")
	case err != nil:
		f.fail("list", err, "let our user read the root of each format")
	default:
		f.pass("reachable", "%s", r.State.Server)
		if len(r.Absent) > 0 {
			f.warn("list", strings.Join(r.Absent, ", ")+" does not exist, so that nothing is read there",
				"check root of the bridge's formats or reads, unless the first provider has yet to register")
		} else {
			f.pass("list", "%d folders in the roots of all formats", r.Parents)
		}
	}
}
