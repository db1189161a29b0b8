package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// elections are those that this process joins as one of several replicas. A reload does
// not change whether it is one. The zero value is that of a process alone.
type elections struct {
	log      *slog.Logger
	expected int                                      // replicas.expected
	options  lease.Options                            // of every election, but for what is elected
	store    func(target string) (lease.Store, error) // nil: it is alone
	end      func()                                   // gives back what the records are kept over
	all      map[string]*election

	running atomic.Pointer[[]*election]
}

// An election is that of the leader of one target: of a registry that a loop
// writes, or of the keys that are published in a mesh.
type election struct {
	*lease.Elector

	target, identity string
	log              *slog.Logger
	link             atomic.Pointer[targetConnection] // to the target, by the loop that runs; nil: it is always connected
}

// newElections makes this process one of several.
func newElections(cfg *config.Config, log *slog.Logger) (*elections, error) {
	r := cfg.Replicas
	identity, err := ownIdentity(r.Identity)
	if err != nil {
		return nil, err
	}
	all := &elections{
		all: make(map[string]*election), log: log, expected: r.Expected,
		options: lease.Options{Identity: identity, TTL: r.TTL.Std(), Log: log.With("component", "lease")},
	}
	if all.store, all.end, err = leaseStore(cfg, log); err != nil {
		return nil, fmt.Errorf("replicas.lease: %w", err)
	}
	return all, nil
}

// leaseStore returns a function that opens the lease of a target, and one that closes what
// all leases share.
func leaseStore(cfg *config.Config, log *slog.Logger) (open func(target string) (lease.Store, error), end func(), err error) {
	r := cfg.Replicas
	if k := r.Lease.Kubernetes; k != nil {
		server, namespace, err := inPod(k.Server, k.Namespace)
		if err != nil {
			return nil, nil, fmt.Errorf("kubernetes.%w", err)
		}
		c := rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{CAFile: k.CAFile}, BearerTokenFile: k.TokenFile}
		return func(target string) (lease.Store, error) {
			return lease.NewKubernetes(c, namespace, k.Object(cfg.Owner, target)), nil
		}, func() {}, nil
	}
	name := r.Lease.ZooKeeper
	return kind.Of(cfg.Registries[name]).Facilities().Leases(cfg.Owner, log.With("component", "zookeeper", "registry", name))
}

// inPod returns the API server and the namespace, by default those of the pod.
func inPod(server, namespace string) (string, string, error) {
	if server == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" {
			return "", "", errors.New("server: not in a pod, and none is given")
		}
		server = "https://" + net.JoinHostPort(host, cmp.Or(port, "443"))
	}
	if namespace == "" {
		b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if err != nil {
			return "", "", fmt.Errorf("namespace: not in a pod, and none is given: %w", err)
		}
		namespace = strings.TrimSpace(string(b))
	}
	return server, namespace, nil
}

// ownIdentity returns a name that no other process has: a replica that starts
// anew has nothing of what it was before.
func ownIdentity(name string) (string, error) {
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("replicas.identity: the machine has no name: %w", err)
		}
		name = host
	}
	return name + "-" + strings.ToLower(rand.Text()[:6]), nil
}

func (r *elections) close() {
	if r.end != nil {
		r.end()
	}
}

// election returns that of a target; nil if this process is alone.
func (r *elections) election(target string) (*election, error) {
	if e := r.all[target]; r.store == nil || e != nil {
		return e, nil
	}
	store, err := r.store(target)
	if err != nil {
		return nil, err
	}
	e := &election{target: target, identity: r.options.Identity, log: r.log.With("component", "bridge", "registry", target)}
	o := r.options
	o.Store, o.Target, o.Log = store, target, o.Log.With("target", target)
	o.Reaches = func() bool { c := e.link.Load(); return c == nil || c.State().LastError == "" }
	e.Elector = lease.New(o)
	r.all[target] = e
	return e, nil
}

func (e *election) run(ctx context.Context) error { return wrap("lease of "+e.target, e.Run(ctx)) }

// fence returns the condition of a transaction of a target; nil if this process is alone.
func (r *elections) fence(target string) func() (zookeeper.Fence, bool) {
	e := r.all[target]
	if e == nil {
		return nil
	}
	return func() (zookeeper.Fence, bool) {
		l := e.Leadership()
		return zookeeper.Fence{Term: l.Term, Holder: e.identity}, l.Role == bridge.RoleLeader
	}
}

// announceConfig publishes to the other replicas what this runtime writes to each target.
func announceConfig(r *runtime) {
	for _, s := range r.targets {
		if s.election == nil {
			continue
		}
		bridges := r.cfg.BridgesTo(s.at)
		for i := range bridges {
			bridges[i].Guard = config.Guard{} // of how, not of what
		}
		s.election.Configure(metadata.Fingerprint(jsonOf(bridges), configLen))
	}
}

// configLen is how long the text for a configuration is that replicas compare.
const configLen = 12

// recordUnread is why another replica may have another file, before the record was read.
const recordUnread = "the record of the replicas was not read yet: another may be configured otherwise"

// differing says why another replica may write services that are not in this file; empty
// if all are configured alike.
func (e *election) differing() string {
	name, differs := e.Differing()
	switch {
	case !differs:
		return ""
	case name == "":
		return recordUnread
	}
	return fmt.Sprintf("replica %s is configured otherwise, or was within %s: services that this file does not write stay until all have one file",
		name, lease.Remembered)
}

// handOverTimeout is how long a replica that ends waits for those who lead next. It
// is less than the 30 s that Kubernetes gives a pod.
const handOverTimeout = 20 * time.Second

// handOver makes others lead what this replica leads before it ends.
func handOver(ctx context.Context, r *runtime) {
	if len(r.elections) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, handOverTimeout, errors.New("nobody was ready within "+handOverTimeout.String()))
	defer cancel()
	began := time.Now()
	err := atOnce(len(r.elections), func(i int) error {
		return wrap("target "+r.elections[i].target, r.elections[i].Leave(ctx))
	})
	if err != nil {
		r.log.Warn("not everything was handed over; others lead after the ttl", "err", err)
		return
	}
	r.log.Info("handed over", "took", time.Since(began).Truncate(time.Millisecond))
}

// statusView returns what the status API reports of the replicas; nil: this is the only one.
func (r *elections) statusView() func() *admin.Replicas {
	if r.store == nil {
		return nil
	}
	return func() *admin.Replicas {
		out := &admin.Replicas{Identity: r.options.Identity, Expected: r.expected, Ready: true, Elections: []admin.Election{}}
		members := make(map[string]bool)
		if running := r.running.Load(); running != nil {
			for _, e := range *running {
				s := e.State()
				out.Elections = append(out.Elections, admin.Election{
					Target: e.target, Role: s.Role, Leader: s.Leader, Term: s.Term, Until: s.Until, Ready: s.Ready,
				})
				for _, name := range s.Members {
					members[name] = true
				}
				out.Ready, out.Lost, out.LastError = out.Ready && s.Ready, out.Lost+s.Lost, cmp.Or(out.LastError, s.LastError)
			}
		}
		out.Members = slices.Sorted(maps.Keys(members))
		return out
	}
}
