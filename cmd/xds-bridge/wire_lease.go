package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// member is this process among its replicas. The nil member is the only one.
type member struct {
	*lease.Member
	shards int
	store  func() // gives back what the record is kept in
}

// replica makes this process one of several, where the configuration says so.
// It stays so for the life of the process, whatever a reload changes.
func (b *builder) replica(cfg *config.Config) (*member, error) {
	r := cfg.Replicas
	if !r.Shared() {
		return nil, nil //nolint:nilnil // the nil member is the only one
	}
	store, end, err := b.leaseStore(cfg)
	if err != nil {
		return nil, fmt.Errorf("replicas.lease: %w", err)
	}
	m := &member{shards: r.Shards, store: end}
	identity, err := ownIdentity(r.Identity)
	if err != nil {
		end()
		return nil, err
	}
	o := lease.Options{
		Store: store, Identity: identity, Shards: r.Shards, TTL: r.TTL.Std(),
		Log: b.log.With("component", "lease"),
	}
	if store.Changed() == nil {
		o.Poll = min(r.TTL.Std()/10, time.Second)
	}
	if m.Member, err = lease.New(o); err != nil {
		end()
		return nil, fmt.Errorf("replicas: %w", err)
	}
	return m, nil
}

// leaseStore opens what keeps the record of the replicas. It has a connection
// of its own, so that no other request keeps a renewal waiting.
func (b *builder) leaseStore(cfg *config.Config) (lease.Store, func(), error) {
	r := cfg.Replicas
	if k := r.Lease.Kubernetes; k != nil {
		store, err := lease.NewKubernetes(lease.KubernetesOptions{
			Server: k.Server, Namespace: k.Namespace, Name: k.Object(cfg.Owner),
			CAFile: k.CAFile, TokenFile: k.TokenFile, TTL: r.TTL.Std(),
		})
		if err != nil {
			return nil, nil, fmt.Errorf("kubernetes: %w", err)
		}
		return store, store.Close, nil
	}
	z := cfg.Registries[r.Lease.ZooKeeper].ZooKeeper
	o := b.zookeeperOptions(r.Lease.ZooKeeper, z)
	o.Observe = nil // the registry's own connection tells
	client, err := zookeeper.Dial(o)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the setting
	}
	store, err := zookeeper.NewRecord(client, cfg.Owner, zookeeper.Access(z.ACL))
	if err != nil {
		client.Close()
	}
	return store, client.Close, err //nolint:wrapcheck // as above
}

// parts returns what keeps this replica one.
func (m *member) parts() []func(context.Context) error {
	if m == nil {
		return nil
	}
	return []func(context.Context) error{named("replicas", m.Run)}
}

func (m *member) close() {
	if m != nil {
		m.store()
	}
}

// configured tells the other replicas what this one is configured to write.
func (m *member) configured(cfg *config.Config) {
	if m == nil {
		return
	}
	bridges := slices.Clone(cfg.Bridges)
	for i := range bridges {
		bridges[i].Guard = config.Guard{} // of how, not of what
	}
	m.Configured(metadata.Fingerprint(text(bridges), configLen))
}

// configLen is how long the word for a configuration is that replicas compare.
const configLen = 12

// unread is why another replica may have another file before any is known.
const unread = "the record of the replicas was not read yet: another may be configured otherwise"

// differing says why another replica may write what this one knows nothing of;
// empty where all are configured alike.
func (m *member) differing() string {
	if m == nil {
		return ""
	}
	name, differs := m.Differing()
	switch {
	case !differs:
		return ""
	case name == "":
		return unread
	}
	return fmt.Sprintf("replica %s is configured otherwise, or was within %s: services that this file does not write stay until all have one file",
		name, lease.Remembered)
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

// gate returns what says which groups of a target this replica may write; nil
// where it is the only one. fault says why the target cannot be reached, empty
// where it can; it may be nil.
func (m *member) gate(fault func() string) *lease.Gate {
	switch {
	case m == nil:
		return nil
	case fault == nil:
		return m.Gate(nil)
	}
	return m.Gate(func() bool { return fault() == "" })
}

// fence returns what a transaction of a target has to be under; nil where
// this replica is the only one.
func (m *member) fence() func(registry.Group) (zookeeper.Fence, bool) {
	if m == nil {
		return nil
	}
	identity := m.Status().Identity
	return func(g registry.Group) (zookeeper.Fence, bool) {
		i := bridge.Shard(g, m.shards)
		s := m.Stand(i)
		return zookeeper.Fence{Shard: i, Term: s.Term, Holder: identity}, s.Role == bridge.RoleDecider
	}
}

// keysShard is the shard whose decider publishes service keys.
const keysShard = 0

// published keeps keys published while this replica is the one to do so, and
// after it was until its successor does.
func published(ctx context.Context, own *lease.Gate, p *keys.Publisher) error {
	if own == nil {
		return p.Run(ctx) //nolint:wrapcheck // named by the house
	}
	own.Enter()
	defer own.Leave()
	gate := own.Bridge()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	o := office{gate: gate, publisher: p, ended: make(chan error, 1), told: make([]bridge.Stand, gate.Shards)}
	defer o.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-o.ended:
			o.stop = nil
			return err
		case <-gate.Changed:
		case <-ticker.C:
		}
		o.turn(ctx)
	}
}

// An office is the part of publishing keys that this replica has.
type office struct {
	gate      *bridge.Gate
	publisher *keys.Publisher
	stop      context.CancelFunc // nil while nothing is published
	ended     chan error
	lostAt    time.Time // when it stopped to be ours; zero while it is
	told      []bridge.Stand
}

// overlap is how long keys stay published after another replica decides.
const overlap = 5 * time.Second

func (o *office) turn(ctx context.Context) {
	now := time.Now()
	for i := range o.gate.Shards {
		o.tell(i)
	}
	switch mine := o.gate.Stand(keysShard).Role == bridge.RoleDecider; {
	case mine:
		o.lostAt = time.Time{}
		o.begin(ctx)
	case o.stop == nil:
	case o.lostAt.IsZero():
		o.lostAt = now
	case now.Sub(o.lostAt) > overlap:
		o.close()
	}
}

// tell says that a shard is ready: of the one that keys hang on only once
// every istiod shows them.
func (o *office) tell(i int) {
	s := o.gate.Stand(i)
	if s.Role == bridge.RoleAway || i == keysShard && s.Role == bridge.RoleDecider && !o.shown() {
		return
	}
	s.Until = time.Time{} // it moves with every renewal
	if o.told[i] != s {
		o.told[i] = s
		o.gate.Ready(i, s)
	}
}

func (o *office) shown() bool {
	s := o.publisher.Status()
	for _, r := range s.Replicas {
		if !r.Connected {
			return false
		}
	}
	return o.stop != nil && len(s.Replicas) > 0
}

func (o *office) begin(ctx context.Context) {
	if o.stop != nil {
		return
	}
	ctx, o.stop = context.WithCancel(ctx)
	ended := o.ended
	go func() { ended <- o.publisher.Run(ctx) }()
}

func (o *office) close() {
	if o.stop != nil {
		o.stop()
		<-o.ended //nolint:errcheck // nothing but the end that was asked for
		o.stop = nil
	}
}

// handOverTime is how long a replica that ends waits for those who take its
// part. It is less than the 30 s that Kubernetes gives a pod.
const handOverTime = 20 * time.Second

// handOver gives what this replica decides to others before it ends.
func (m *member) handOver(ctx context.Context, log *slog.Logger) {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, handOverTime, errors.New("nobody was ready within "+handOverTime.String()))
	defer cancel()
	began := time.Now()
	if err := m.Leave(ctx); err != nil {
		log.Warn("not everything was handed over; others take it within the ttl", "err", err)
		return
	}
	log.Info("handed over", "took", time.Since(began).Truncate(time.Millisecond))
}

// shown returns how this process stands among the others; nil where it is the
// only one.
func (m *member) shown() func() *admin.Replicas {
	if m == nil {
		return nil
	}
	return func() *admin.Replicas {
		s := m.Status()
		r := &admin.Replicas{
			Identity: s.Identity, Members: s.Members, Until: s.Until, Lost: s.Lost,
			Ready: s.CaughtUp(), LastError: s.LastError,
		}
		for i, sh := range s.Shards {
			r.Shards = append(r.Shards, admin.Shard{
				Shard: i, Role: sh.Role, Decider: sh.Decider, Warm: sh.Warm, Term: sh.Term, Ready: sh.Ready,
			})
		}
		return r
	}
}
