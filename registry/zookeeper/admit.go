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

// ErrDuplicateProcess says that another process writes as the same owner, and ErrOwner
// that the same bridges wrote as another owner before. Both are for a person
// to decide; that it was decided is found by asking again.
var (
	ErrDuplicateProcess = errors.New("another bridge of this owner runs")
	ErrOwner            = errors.New("the owner was changed")
)

// admission is what is known of whether the target may write at all.
type admission struct {
	asking chan struct{} // holds one while somebody asks the server

	// Only who asks touches these.
	duplicate time.Time // since when another process is seen to live; zero: none was
	gone      time.Time // since when one that was found to live is not seen; zero: it is, or none was found
	found     bool      // there was another process that may come back after it lost its session
	earlier   bool      // our bridges were found to have written as another owner

	mu      sync.Mutex
	given   bool
	refused error
	hidden  error // see Hidden
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

// Admission implements registry.Admitted. If the target was not admitted to write, the
// error says what it waits for or why it is refused.
func (t *Target) Admission() error {
	if decided, refused := t.admission.decided(); decided {
		return refused
	}
	return fmt.Errorf("nothing is written before it is sure that no other bridge of owner %q runs", t.opts.Owner)
}

// hide notes an error of showing that we live. One of the connection says nothing
// that the state of the client does not, and is over with it.
func (a *admission) hide(err error) {
	if !errors.Is(err, registry.ErrRefused) {
		err = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hidden = err
}

// admitEvery is how often it is looked whether another process has gone.
const admitEvery = 500 * time.Millisecond

// Admit waits until the target may write: until no other process of the owner
// lives, and unless the same bridges wrote as another owner before, whose
// entries would be left behind. It returns nil where that is so or ctx ended,
// and ErrDuplicateProcess or ErrOwner where it will not be until a person does something:
// then writes fail until Admit is called again and finds it done. A server that
// cannot be reached is waited for.
func (t *Target) Admit(ctx context.Context) error {
	t.admission.mu.Lock()
	t.admission.refused = nil
	t.admission.mu.Unlock()
	for {
		err := t.admit(ctx)
		if err == nil || errors.Is(err, ErrDuplicateProcess) || errors.Is(err, ErrOwner) {
			return err
		}
		if sleep(ctx, admitEvery); ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended, and the caller knows
		}
	}
}

// admit is Admit for one write: it fails where ctx ends or the server cannot
// be reached. Once given it stays: a bridge that loses its session continues.
func (t *Target) admit(ctx context.Context) error {
	if t.opts.Adopts != nil {
		return nil // by a person's word
	}
	for {
		wait, err := t.ask(ctx)
		if err != nil || !wait {
			return err
		}
		if sleep(ctx, admitEvery); ctx.Err() != nil {
			return fmt.Errorf("another bridge of owner %q may be running; waiting whether its sign of life goes: %w", t.opts.Owner, ctx.Err())
		}
	}
}

// ask asks the server unless it is decided, and reports whether to wait. Of
// several who ask at the same time one does so for all.
func (t *Target) ask(ctx context.Context) (wait bool, err error) {
	a := &t.admission
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
	wait, err = t.duplicate(ctx)
	if err == nil && !wait {
		err = t.predecessor(ctx)
	}
	switch {
	case errors.Is(err, ErrDuplicateProcess), errors.Is(err, ErrOwner):
		a.decide(err)
		return false, err
	case errors.Is(err, registry.ErrRefused):
		t.opts.Log.Warn("cannot see whether another bridge of this owner runs", "err", err)
	case err != nil || wait:
		return wait, err
	}
	a.decide(nil)
	return false, nil
}

// predecessor returns ErrOwner where bridges of ours wrote here as another
// owner that lives no more, while this one never did.
func (t *Target) predecessor(ctx context.Context) error {
	if len(t.opts.Bridges) == 0 {
		return nil
	}
	switch stat, err := t.client.exists(ctx, t.home()+bridgesNode); {
	case err != nil:
		return fmt.Errorf("read %s: %w", t.home(), err)
	case stat != nil && !t.admission.earlier: // else an adopt is under way, or was given up
		return nil // it is no newcomer
	}
	owners, err := t.owners(ctx)
	if err != nil {
		return err
	}
	for _, owner := range owners {
		same, err := t.sameBridge(ctx, owner)
		if err != nil {
			return err
		}
		if same != "" && owner != t.opts.Owner {
			t.admission.earlier = true
			return fmt.Errorf("%w: the registry remembers bridge %q under owner %q, of which no bridge runs now, and does not know owner %q; "+
				"put the owner back if it was changed by mistake, take its entries over with xds-bridge adopt --from %s --yes, "+
				"or leave them to nobody with xds-bridge release --owner %s --yes; a deployment of its own has to name its bridges otherwise",
				ErrOwner, same, owner, t.opts.Owner, owner, owner)
		}
	}
	return nil
}

// sameBridge returns a bridge of ours that an owner wrote who lives no more;
// empty where there is none.
func (t *Target) sameBridge(ctx context.Context, owner string) (string, error) {
	n, err := t.client.get(ctx, homeOf(owner)+bridgesNode)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, registry.ErrRefused) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", homeOf(owner), err)
	}
	for line := range strings.Lines(string(n.data)) {
		if line = strings.TrimSpace(line); !slices.Contains(t.opts.Bridges, line) {
			continue
		}
		there, err := t.there(ctx, owner, "alive", ledgerParent[1:], "session")
		if err != nil {
			return "", err
		}
		// Who wrote left a ledger, or the marker of a session: without them the
		// record is a mere claim, which anybody may make who may write here.
		if !there[0] && (there[1] || there[2]) {
			return line, nil
		}
	}
	return "", nil
}

// there reports which nodes an owner has of its own.
func (t *Target) there(ctx context.Context, owner string, names ...string) ([]bool, error) {
	out := make([]bool, len(names))
	for i, name := range names {
		stat, err := t.client.exists(ctx, homeOf(owner)+"/"+name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", homeOf(owner), err)
		}
		out[i] = stat != nil
	}
	return out, nil
}

// bridgesNode remembers, one on a line, which bridges wrote as an owner.
const bridgesNode = "/bridges"

// remember leaves the record of our bridges before the first entry is written.
func (t *Target) remember(ctx context.Context) error {
	session := t.client.State().Session
	if done, _ := t.remembered.get(session); done || len(t.opts.Bridges) == 0 {
		return nil
	}
	data := []byte(strings.Join(t.opts.Bridges, "\n") + "\n")
	n, err := t.client.get(ctx, t.home()+bridgesNode)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		err = t.client.make(ctx, t.own(strings.TrimPrefix(bridgesNode, "/"), string(data), zk.FlagPersistent))
	case err == nil && string(n.data) != string(data):
		_, err = t.client.multi(ctx, []any{&zk.SetDataRequest{Path: t.home() + bridgesNode, Data: data, Version: -1}})
	}
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("write %s: %w", t.home()+bridgesNode, err)
	}
	t.remembered.set(session, true)
	return nil
}

// tighten takes from everybody what a version before left open: the nodes
// above the bridge's own, under which anybody could delete its fence or show
// a sign of life in its name. What another user made is reported, and left.
func (t *Target) tighten(ctx context.Context) error {
	session := t.client.State().Session
	if done, _ := t.tightened.get(session); done || t.opts.Access == Open {
		return nil
	}
	names, err := t.client.children(ctx, t.home())
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("list %s: %w", t.home(), err)
	}
	paths := []string{home, t.home()}
	for _, name := range names {
		paths = append(paths, t.home()+"/"+name)
	}
	for _, path := range paths {
		err := t.tightenOne(ctx, path)
		if errors.Is(err, registry.ErrRefused) {
			t.opts.Log.Warn("a node of the bridge's own is open to everybody, and not ours to close; set its ACL by hand", "path", path, "err", err)
		} else if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return fmt.Errorf("ACL of %s: %w", path, err)
		}
	}
	t.tightened.set(session, true)
	return nil
}

// tightenOne replaces the ACL of a node that everybody may change.
func (t *Target) tightenOne(ctx context.Context, path string) error {
	_, err := call(ctx, t.client, func(conn conn) (struct{}, error) {
		acl, stat, err := conn.GetACL(path)
		if err != nil || !slices.Contains(acl, zk.WorldACL(zk.PermAll)[0]) {
			return struct{}{}, err
		}
		_, err = conn.SetACL(path, aclAbove(path, t.acl()), stat.Aversion)
		return struct{}{}, err
	})
	return err
}
