package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// checkZooKeeper tries a ZooKeeper ensemble by a node that is written and
// deleted.
func checkZooKeeper(cfg *config.Config, at sinkKey, target *zookeeper.Target) func(context.Context, *findings) {
	z := cfg.Registries[at.registry].ZooKeeper
	return func(ctx context.Context, f *findings) {
		r, err := target.Check(ctx)
		if err != nil {
			f.away("reachable", err, "check zookeeper.servers, tls, and that the ensemble has a quorum")
			return
		}
		f.pass("reachable", "%s", r.Server)
		f.plaintext(z.TLS, z.User, z.Servers, "write tls: {caFile: …}, where the ensemble has a secure port")
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
		f.clock(r.Skew)
		f.owner(ctx, cfg, at, target)
	}
}

// askOwner is how long it may take to look who wrote there before.
const askOwner = 3 * time.Second

// owner tells what keeps run from writing: another process of the owner, or
// bridges of ours that wrote as another owner.
func (f *findings) owner(ctx context.Context, cfg *config.Config, at sinkKey, target *zookeeper.Target) {
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
			f.pass("list", "%d folders in the roots of all formats", r.Folders)
		}
	}
}

func (n nacosSource) check(ctx context.Context, f *findings) {
	state, services, err := n.Check(ctx)
	switch {
	case state.Login.Err != nil:
		f.login(state.Login.Err)
	case err != nil && !state.Connected:
		f.away("reachable", err, "check nacos.servers; the gRPC port, 1000 above the HTTP port, has to be open as well")
	case errors.Is(err, nacos.ErrNoNamespace):
		f.fail("list", err, namespaceRemedy)
	case err != nil:
		f.fail("list", err, "let our user read the namespace and the groups of each format")
	default:
		f.pass("reachable", "%s", state.Server)
		if services == 0 {
			f.warn("list", "no service of our formats is there, so that nothing is read", "check nacos.namespace and group of the bridge's formats or reads, unless the first provider has yet to register")
		} else {
			f.pass("list", "%d services", services)
		}
	}
}

// checkNacos tries a Nacos cluster by an instance that is published and taken
// back.
func checkNacos(n *config.Nacos, client *nacos.Client, target *nacos.Target) func(context.Context, *findings) {
	return func(ctx context.Context, f *findings) {
		running, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- client.Run(running) }()
		r, err := target.Check(ctx)
		login := client.State().Login
		cancel()
		if failed := <-ended; err == nil {
			err = failed
		}
		switch {
		case login.Err != nil:
			f.login(login.Err)
			return
		case err != nil:
			f.away("reachable", err, "check nacos.servers; the gRPC port, 1000 above the HTTP port, has to be open as well")
			return
		}
		f.pass("reachable", "%s", r.Server)
		if login.Username != "" {
			f.pass("login", "as %s, until %s", login.Username, login.Expires.Format(time.RFC3339))
		}
		f.plaintext(n.TLS, n.Username, n.Servers, "write https:// servers and tls: {caFile: …}")
		f.nacosAccess(n, r)
	}
}

// login judges why we are not logged in: only a server that denies it says
// anything of the password.
func (f *findings) login(err error) {
	switch {
	case errors.Is(err, nacos.ErrDenied):
		f.fail("login", err, "check username and passwordFile of the registry")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		f.fail("login", err, "let the bridge read passwordFile of the registry")
	default:
		f.away("login", err, "check nacos.servers: a login goes to the HTTP port; the log of Nacos says more")
	}
}

// namespaceRemedy is what to do about a namespace that does not exist.
const namespaceRemedy = "write the id of the namespace as nacos.namespace, which its page in the console shows, and not its name; or create it"

// plaintext warns where a password crosses the network for everybody to read,
// which insecure: true permits.
func (f *findings) plaintext(tls *config.TLS, user string, servers []string, remedy string) {
	if tls == nil && user != "" && !config.Local(servers) {
		f.warn("tls", "insecure: true: the password of "+user+" crosses the network in plaintext", remedy)
	}
}

// nacosAccess tells what we may do in the namespace.
func (f *findings) nacosAccess(n *config.Nacos, r nacos.Report) {
	user := cmp.Or(n.Username, "anonymous clients")
	namespace := cmp.Or(n.Namespace, "public")
	switch {
	case errors.Is(r.Read, nacos.ErrNoNamespace):
		f.fail("list", r.Read, namespaceRemedy)
	case r.Read != nil:
		f.fail("list", r.Read, "let "+user+" read the namespace "+namespace)
	case r.Groups == 0 && n.Namespace != "": // Nacos makes do with any id, and not all servers tell which there are
		f.warn("list", "no service of our formats is in namespace "+namespace, "check that nacos.namespace is the id of the namespace, which its page in the console shows, and not its name; a new one is empty")
	default:
		f.pass("list", "%d services of our formats in namespace %s", r.Groups, namespace)
	}
	if r.Write != nil {
		f.fail("write", r.Write, "let "+user+" write to the namespace "+namespace)
	} else {
		f.pass("write", "an instance was published and taken back in %s", r.Took.Round(time.Millisecond))
	}
	if r.Duplicate == "" {
		f.pass("owner", "no other process publishes as this owner")
	} else {
		f.warn("owner", "another process publishes as this owner, in "+r.Duplicate+" for one",
			"it is a replica where its configuration is the same; Nacos cannot refuse a second deployment of one owner: give it an owner of its own")
	}
}
