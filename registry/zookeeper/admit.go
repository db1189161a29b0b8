package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrTwin says that another process writes as the same owner, and ErrOwner
// that the same bridges wrote as another owner before. Both are for a person
// to decide; that it was decided is found by asking again.
var (
	ErrTwin  = errors.New("another bridge of this owner runs")
	ErrOwner = errors.New("the owner was changed")
)

// life is what the ephemeral node alive says of the process that made it.
type life struct {
	Host    string        `json:"host"`
	Process int           `json:"process"`
	Timeout time.Duration `json:"timeout"` // of its session, by which the node goes after a kill
}

func (t *Target) life() string {
	host, _ := os.Hostname() // nobody is found by it then
	data, err := json.Marshal(life{Host: host, Process: os.Getpid(), Timeout: t.client.State().Timeout})
	if err != nil {
		panic(err) // of strings and numbers alone
	}
	return string(data)
}

// left reports whether a sign of life is but what is left of a process that
// ended on this machine.
func (l life) left() bool {
	host, err := os.Hostname()
	if err != nil || l.Host != host || l.Process <= 0 {
		return false
	}
	if l.Process == os.Getpid() {
		return true // in a container every process may be the first
	}
	p, err := os.FindProcess(l.Process)
	if err != nil {
		return true
	}
	return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// admission is what is known of whether the target may write at all.
type admission struct {
	mu      sync.Mutex
	given   bool
	refused error
	twin    time.Time // since when another process is seen to live; zero: none was
	gone    time.Time // since when one that was found to live is not seen; zero: it is, or none was found
	found   bool      // another process lived longer than what a killed one leaves
	earlier bool      // our bridges were found to have written as another owner
}

// admitEvery is how often it is looked whether another process has gone.
const admitEvery = 500 * time.Millisecond

// Admit waits until the target may write: until no other process of the owner
// lives, and unless the same bridges wrote as another owner before, whose
// entries would be left behind. It returns nil where that is so or ctx ended,
// and ErrTwin or ErrOwner where it will not be until a person does something:
// then writes fail until Admit is called again and finds it done. A server that
// cannot be reached is waited for.
func (t *Target) Admit(ctx context.Context) error {
	t.admission.mu.Lock()
	t.admission.refused = nil
	t.admission.mu.Unlock()
	for {
		err := t.admit(ctx)
		if err == nil || errors.Is(err, ErrTwin) || errors.Is(err, ErrOwner) {
			return err
		}
		if sleep(ctx, admitEvery); ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended, and the caller knows
		}
	}
}

// admit is Admit for one write: it fails where ctx ends or the server cannot
// be reached. Once given it stays: a bridge that loses its session goes on.
func (t *Target) admit(ctx context.Context) error {
	if t.opts.Takes != nil {
		return nil // by a person's word
	}
	a := &t.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.given && a.refused == nil {
		wait, err := t.twin(ctx)
		if err == nil && !wait {
			err = t.predecessor(ctx)
		}
		switch {
		case errors.Is(err, ErrTwin), errors.Is(err, ErrOwner):
			a.refused = err
		case errors.Is(err, registry.ErrRefused):
			t.opts.Log.Warn("cannot see whether another bridge of this owner runs", "err", err)
			a.given = true
		case err != nil:
			return err
		case wait:
			if sleep(ctx, admitEvery); ctx.Err() != nil {
				return fmt.Errorf("another bridge of owner %q may be running; waiting whether its sign of life goes: %w", t.opts.Owner, ctx.Err())
			}
		default:
			a.given = true
		}
	}
	return a.refused
}

// twin reports whether to wait for another process's sign of life to go, and
// returns ErrTwin where it stayed for longer than what a killed one leaves.
func (t *Target) twin(ctx context.Context) (bool, error) {
	if t.opts.Shared {
		return false, nil
	}
	path := t.home() + "/alive"
	n, err := t.client.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return t.admission.missed(time.Now()), nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	var other life
	_ = json.Unmarshal(n.data, &other) // one that cannot be read may be anybody's
	if n.stat.EphemeralOwner == t.client.State().Session || other.left() {
		return false, nil
	}
	now, patience := time.Now(), max(other.Timeout, t.client.State().Timeout)+aliveInterval/2
	t.admission.gone = time.Time{}
	if t.admission.twin.IsZero() {
		t.admission.twin = now
		t.opts.Log.Info("another bridge of this owner may be running; nothing is written before its sign of life goes",
			"host", other.Host, "process", other.Process, "patience", patience)
	}
	if now.Sub(t.admission.twin) < patience {
		return true, nil
	}
	t.admission.found = true
	return false, fmt.Errorf("%w: owner %q is alive on host %q as process %d; stop that one, or give this one another owner",
		ErrTwin, t.opts.Owner, other.Host, other.Process)
}

// missed reports whether to wait all the same though no sign of life is seen:
// a process that lives and lost its session makes its sign anew.
func (a *admission) missed(now time.Time) bool {
	if a.found && a.gone.IsZero() {
		a.gone = now
	}
	return a.found && now.Sub(a.gone) < 2*aliveInterval
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
				"or leave them to nobody with xds-bridge release --owner %s --yes; a deployment of its own needs other names for its bridges",
				ErrOwner, same, owner, t.opts.Owner, owner, owner)
		}
	}
	return nil
}

// owners returns whoever has a folder of its own.
func (t *Target) owners(ctx context.Context) ([]string, error) {
	names, err := t.client.children(ctx, home)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", home, err)
	}
	owners := make([]string, 0, len(names))
	for _, name := range names {
		if owner, err := url.PathUnescape(name); err == nil {
			owners = append(owners, owner)
		}
	}
	slices.Sort(owners)
	return owners, nil
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
		alive, err := t.client.exists(ctx, homeOf(owner)+"/alive")
		if err != nil {
			return "", fmt.Errorf("read %s: %w", homeOf(owner), err)
		}
		if alive == nil {
			return line, nil
		}
	}
	return "", nil
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
