package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrDuplicateProcess means that another process writes as the same owner, and
// ErrOwner that the same bridges wrote as another owner before. A person has to
// decide what to do; asking again finds that it was done.
var (
	ErrDuplicateProcess = errors.New("another bridge of this owner runs")
	ErrOwner            = errors.New("the owner was changed")
)

// admitInterval is how often it is checked whether another process has ended.
const admitInterval = 500 * time.Millisecond

// admission decides whether a target may write at all, and prepares the owner's home.
type admission struct {
	home     *home
	opts     *TargetOptions
	presence *presence

	asking  chan struct{} // holds one while a goroutine asks the server
	earlier bool          // our bridges wrote as another owner; only who asks touches it

	mu      sync.Mutex
	given   bool
	refused error
}

func newAdmission(h *home, opts *TargetOptions, p *presence) *admission {
	return &admission{home: h, opts: opts, presence: p, asking: make(chan struct{}, 1)}
}

// decided reports whether it is decided, and returns the refusal if it is one.
func (a *admission) decided() (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.given || a.refused != nil, a.refused
}

func (a *admission) decide(refused error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.given, a.refused = refused == nil, refused
}

// Admission is that of registry.Capabilities. If the target was not admitted to write, the
// error says what it waits for or why it is refused.
func (a *admission) Admission() error {
	if decided, refused := a.decided(); decided {
		return refused
	}
	return fmt.Errorf("nothing is written before it is sure that no other bridge of owner %q runs", a.opts.Owner)
}

// Admit waits until the target may write: until no other process of the owner
// runs, and unless the same bridges wrote as another owner before, whose
// entries would be orphans. It returns nil if that is so or ctx ended.
// ErrDuplicateProcess and ErrOwner require a person: writes fail until Admit is
// called again and finds it done. It waits for a server that is unreachable.
func (a *admission) Admit(ctx context.Context) error {
	a.mu.Lock()
	a.refused = nil
	a.mu.Unlock()
	for {
		err := a.admit(ctx)
		if err == nil || isRefusal(err) {
			return err
		}
		if registry.Sleep(ctx, admitInterval); ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended, and the caller knows
		}
	}
}

func isRefusal(err error) bool {
	return errors.Is(err, ErrDuplicateProcess) || errors.Is(err, ErrOwner)
}

// admit is Admit for one write: it fails if ctx ends or the server is
// unreachable. It is given once: a bridge that loses its session continues.
func (a *admission) admit(ctx context.Context) error {
	if a.opts.Adopts != nil {
		return nil // a person decided it
	}
	for {
		wait, err := a.ask(ctx)
		if err != nil || !wait {
			return err
		}
		if registry.Sleep(ctx, admitInterval); ctx.Err() != nil {
			return fmt.Errorf("another bridge of owner %q may be running; waiting whether its liveness node goes: %w", a.opts.Owner, ctx.Err())
		}
	}
}

// ask asks the server unless it is decided, and reports whether to wait. Of
// several goroutines that ask at the same time, one does so for all.
func (a *admission) ask(ctx context.Context) (wait bool, err error) {
	if decided, refused := a.decided(); decided {
		return false, refused
	}
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	case <-ctx.Done():
		return false, fmt.Errorf("zookeeper: %w", ctx.Err())
	}
	if decided, refused := a.decided(); decided {
		return false, refused
	}
	wait, err = a.presence.findOther(ctx)
	if err == nil && !wait {
		err = a.findPredecessor(ctx)
	}
	switch {
	case isRefusal(err):
		a.decide(err)
		return false, err
	case errors.Is(err, registry.ErrRefused):
		a.opts.Log.Warn("cannot see whether another bridge of this owner runs", "err", err)
	case err != nil || wait:
		return wait, err
	}
	a.decide(nil)
	return false, nil
}

// findPredecessor returns ErrOwner if bridges of ours wrote here as another
// owner that runs no more, while this one never did.
func (a *admission) findPredecessor(ctx context.Context) error {
	if len(a.opts.Bridges) == 0 {
		return nil
	}
	switch wrote, err := a.home.exists(ctx, bridgesNode); {
	case err != nil:
		return fmt.Errorf("read %s: %w", a.home.path, err)
	case wrote && !a.earlier: // else an adopt is in progress, or was given up
		return nil // the owner is not new
	}
	names, err := owners{a.home.client}.Owners(ctx)
	if err != nil {
		return err
	}
	for _, owner := range names {
		same, err := a.bridgeOf(ctx, owner)
		if err != nil {
			return err
		}
		if same != "" && owner != a.opts.Owner {
			a.earlier = true
			return fmt.Errorf("%w: the registry remembers bridge %q under owner %q, of which no bridge runs now, and does not know owner %q; "+
				"put the owner back if it was changed by mistake, adopt its entries with xds-bridge adopt --from %s --yes, "+
				"or leave them to nobody with xds-bridge release --owner %s --yes; a deployment of its own has to name its bridges otherwise",
				ErrOwner, same, owner, a.opts.Owner, owner, owner)
		}
	}
	return nil
}

// bridgeOf returns a bridge of ours that an owner recorded, if that owner wrote entries
// and runs no more; empty for none.
func (a *admission) bridgeOf(ctx context.Context, owner string) (string, error) {
	h := newHome(a.home.client, owner, Open)
	n, err := h.client.read(ctx, h.node(bridgesNode))
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return "", err
	}
	for line := range strings.Lines(string(n.data)) {
		if line = strings.TrimSpace(line); !slices.Contains(a.opts.Bridges, line) {
			continue
		}
		var exists [3]bool
		for i, name := range []string{aliveNode, ledgerNode, sessionNode} {
			if exists[i], err = h.exists(ctx, name); err != nil {
				return "", fmt.Errorf("read %s: %w", h.path, err)
			}
		}
		// An owner that wrote has a ledger or the marker of a session. Without them
		// the record proves nothing, because anybody who may write here can make it.
		if alive, wrote := exists[0], exists[1] || exists[2]; !alive && wrote {
			return line, nil
		}
	}
	return "", nil
}

func (a *admission) storeBridges(ctx context.Context) error {
	if len(a.opts.Bridges) == 0 {
		return nil
	}
	create := a.home.request(bridgesNode, strings.Join(a.opts.Bridges, "\n")+"\n", zk.FlagPersistent)
	n, err := a.home.client.read(ctx, create.Path)
	if err == nil && string(n.data) != string(create.Data) {
		err = a.home.client.store(ctx, create)
	}
	if errors.Is(err, registry.ErrRefused) {
		return nil
	}
	return err
}

// restrictHome removes the rights of everybody that an older version granted on the
// nodes of the home: with them anybody could delete the fence or create the node
// alive. A node that another user created is logged, and kept.
func (a *admission) restrictHome(ctx context.Context) error {
	if a.opts.Access == Open {
		return nil
	}
	names, err := a.home.client.list(ctx, a.home.path)
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return err
	}
	paths := []string{homeRoot, a.home.path}
	for _, name := range names {
		paths = append(paths, a.home.node(name))
	}
	for _, path := range paths {
		err := a.home.client.replaceOpenACL(ctx, path, aclAbove(path, a.home.acl))
		if errors.Is(err, registry.ErrRefused) {
			a.opts.Log.Warn("a node of the bridge's own is open to everybody, and not ours to close; set its ACL by hand", "path", path, "err", err)
		} else if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return fmt.Errorf("ACL of %s: %w", path, err)
		}
	}
	return nil
}
