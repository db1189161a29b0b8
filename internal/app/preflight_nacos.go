package app

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func (n nacosSource) check(ctx context.Context, f *findings) {
	state, services, err := n.Check(ctx)
	switch {
	case state.Login.Err != nil:
		f.checkLogin(state.Login.Err)
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
			f.checkLogin(login.Err)
			return
		case err != nil:
			f.away("reachable", err, "check nacos.servers; the gRPC port, 1000 above the HTTP port, has to be open as well")
			return
		}
		f.pass("reachable", "%s", r.Server)
		if login.Username != "" {
			f.pass("login", "as %s, until %s", login.Username, login.Expires.Format(time.RFC3339))
		}
		f.checkPlaintext(n.TLS, n.Username, n.Servers, "write https:// servers and tls: {caFile: …}")
		f.checkNacosAccess(n, r)
	}
}

// checkLogin judges why we are not logged in: only a server that denies it says
// anything of the password.
func (f *findings) checkLogin(err error) {
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

// checkNacosAccess tells what we may do in the namespace.
func (f *findings) checkNacosAccess(n *config.Nacos, r nacos.Report) {
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
