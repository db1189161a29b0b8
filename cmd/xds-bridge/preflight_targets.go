package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// checkZooKeeper tries a ZooKeeper ensemble by a node that is written and
// deleted.
func checkZooKeeper(z *config.ZooKeeper, target *zookeeper.Target) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		r, err := target.Check(ctx)
		if err != nil {
			f.away("reachable", err, "check zookeeper.servers, tls, and that the ensemble has a quorum")
			return
		}
		f.pass("reachable", "%s", r.Server)
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
			user := orWord(z.User, "anybody, since no user is set")
			f.fail("write", r.Write, "let "+user+" create and delete under /xds-bridge and the root of each format")
			return
		}
		f.pass("write", "a node was made and deleted in %s", r.Took.Round(time.Millisecond))
		f.clock(r.Skew)
	}
}

// checkNacos tries a Nacos cluster by listing what is written to.
func checkNacos(client *nacos.Client, target *nacos.Target) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		running, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- client.Run(running) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				f.fail("connection", err, "check nacos.servers, tls and passwordFile")
			}
		}()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil && !client.State().Connected {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		s := client.State()
		if !s.Connected {
			f.away("reachable", errors.New(orWord(s.LastError, "no connection")), "check nacos.servers; the gRPC port, 1000 above the HTTP port, has to be open as well")
			return
		}
		f.pass("reachable", "%s", s.Server)
		groups, err := target.Groups(ctx)
		switch {
		case errors.Is(err, nacos.ErrDenied), errors.Is(err, registry.ErrRefused):
			f.fail("list", err, "check username and passwordFile, and let the user read and write the namespace")
		case err != nil:
			f.away("list", err, "see the log of the server")
		default:
			f.pass("list", "%d services of our formats", len(groups))
		}
	}
}
