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

// ErrDuplicateProcess means that another process writes as the same owner. ErrOwner means
// that the same bridges wrote as another owner before. An operator has to decide what to
// do. The next call of Admit finds the result.
var (
	ErrDuplicateProcess = errors.New("another bridge of this owner runs")
	ErrOwner            = errors.New("the owner was changed")
)

// admitInterval is the time between two checks whether another process has ended.
const admitInterval = 500 * time.Millisecond

// admission decides whether a target may write at all, and prepares the owner's home.
type admission struct {
	home     *home
	opts     *TargetOptions
	presence *presence

	checking         chan struct{} // holds a value while a goroutine checks
	foundPredecessor bool          // our bridges wrote as another owner; owned by the goroutine that checks

	mu       sync.Mutex
	admitted bool
	refused  error
}

func newAdmission(h *home, opts *TargetOptions, p *presence) *admission {
	return &admission{home: h, opts: opts, presence: p, checking: make(chan struct{}, 1)}
}

// decided reports whether the target was admitted or refused, and returns the refusal.
func (a *admission) decided() (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.admitted || a.refused != nil, a.refused
}

func (a *admission) decide(refused error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.admitted, a.refused = refused == nil, refused
}

// Admission returns what the target waits for before it may write, or why it is refused;
// see registry.Capabilities.
func (a *admission) Admission() error {
	if decided, refused := a.decided(); decided {
		return refused
	}
	return fmt.Errorf("writes wait for a check that no other bridge of owner %q runs", a.opts.Owner)
}

// Admit waits until no other process of the owner runs. It returns nil if the target may
// write, or if ctx ended. It waits for a server that is unreachable.
//
// It returns ErrDuplicateProcess if the other process does not end, and ErrOwner if the
// same bridges wrote as another owner before, whose entries would be orphans. Writes then
// fail until an operator resolved that and Admit is called again.
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
			return nil //nolint:nilerr // ctx ended
		}
	}
}

func isRefusal(err error) bool {
	return errors.Is(err, ErrDuplicateProcess) || errors.Is(err, ErrOwner)
}

// admit is Admit for one write: it fails if ctx ends or the server is unreachable. A
// target is admitted once: a bridge that loses its session continues to write.
func (a *admission) admit(ctx context.Context) error {
	if a.opts.Adopts != nil {
		return nil // an operator decided
	}
	for {
		wait, err := a.check(ctx)
		if err != nil || !wait {
			return err
		}
		if registry.Sleep(ctx, admitInterval); ctx.Err() != nil {
			return fmt.Errorf("another bridge of owner %q may be running; waiting for its liveness node to disappear: %w",
				a.opts.Owner, ctx.Err())
		}
	}
}

// check checks on the server whether the target may write, unless that is decided. It
// reports whether to wait and to check again. One goroutine checks at a time.
func (a *admission) check(ctx context.Context) (wait bool, err error) {
	if decided, refused := a.decided(); decided {
		return false, refused
	}
	select {
	case a.checking <- struct{}{}:
		defer func() { <-a.checking }()
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
		a.opts.Log.Warn("cannot check whether another bridge of this owner runs", "err", err)
	case err != nil || wait:
		return wait, err
	}
	a.decide(nil)
	return false, nil
}

// findPredecessor returns ErrOwner if our bridges wrote here as another owner of which
// no bridge runs now, and never as this owner.
func (a *admission) findPredecessor(ctx context.Context) error {
	if len(a.opts.Bridges) == 0 {
		return nil
	}
	switch wrote, err := a.home.exists(ctx, bridgesNode); {
	case err != nil:
		return fmt.Errorf("read %s: %w", a.home.path, err)
	case wrote && !a.foundPredecessor: // otherwise adopt was started after the refusal
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
			a.foundPredecessor = true
			return fmt.Errorf("%w: bridge %q wrote here under owner %q, of which no bridge runs now, and never under owner %q; "+
				"restore the owner if it was changed by mistake, adopt its entries with xds-bridge adopt --from %s --yes, "+
				"or release them with xds-bridge release --owner %s --yes; a separate deployment has to use other names of bridges",
				ErrOwner, same, owner, a.opts.Owner, owner, owner)
		}
	}
	return nil
}

// bridgeOf returns one of our bridges that wrote entries as an owner of which no bridge
// runs now; empty for none.
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
		// An owner that wrote has a ledger or the marker of a session. Without them the
		// list of bridges proves nothing, because every user with access can create it.
		if alive, wrote := exists[0], exists[1] || exists[2]; !alive && wrote {
			return line, nil
		}
	}
	return "", nil
}

// storeBridges stores that our bridges write as the owner, for findPredecessor.
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

// restrictHome removes the rights that an older version granted to all users on the nodes
// of the home: every user could delete the fence or create the node alive. A node that
// another user created is logged and left as it is.
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
			a.opts.Log.Warn("node of the bridge is writable by all users, and its ACL cannot be changed; set the ACL manually",
				"path", path, "err", err)
		} else if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return fmt.Errorf("ACL of %s: %w", path, err)
		}
	}
	return nil
}
