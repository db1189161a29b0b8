package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Fence is the right to write as an owner. A node holds its term and holder, and every
// transaction checks that node. After another process has raised the node to a later term,
// no transaction of an earlier term is applied, however late it arrives.
type Fence struct {
	Term   int64
	Holder string
}

func (f Fence) content() string { return strconv.FormatInt(f.Term, 10) + " " + f.Holder }

// checkLater returns an error unless the term is later than the term in a node's content.
func (f Fence) checkLater(path, content string) error {
	text, holder, _ := strings.Cut(content, " ")
	term, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: expected a term in %s, found %.80q; delete the node", registry.ErrRefused, path, content)
	}
	if term >= f.Term {
		return fmt.Errorf("%w: %s holds the fence in term %d, ours is %d; "+
			"if that process and its replicas no longer run, delete %s", registry.ErrFenced,
			holder, term, f.Term, path)
	}
	return nil
}

// fence allows a target to write only while this process has the right to.
type fence struct {
	home    *home
	current func() (Fence, bool)        // nil: no fence
	raised  atomic.Pointer[raisedFence] // nil: this process did not raise the node
}

// A raisedFence is the fence to which this process raised the node.
type raisedFence struct {
	Fence
	version int32 // of the node
}

// raise raises the fence if this process may write. Then the writes of other processes
// that are in flight fail, so that only this process changes what is read next.
func (f *fence) raise(ctx context.Context) error {
	if f.current == nil {
		return nil
	}
	to, ours := f.current()
	if !ours {
		return nil
	}
	_, err := f.raiseTo(ctx, to)
	return err
}

// check returns the operation that checks whether this process still may write; none
// without a fence.
func (f *fence) check(ctx context.Context) ([]any, error) {
	if f.current == nil {
		return nil, nil
	}
	to, ours := f.current()
	if !ours {
		return nil, fmt.Errorf("%w: this replica does not lead", registry.ErrFenced)
	}
	version, err := f.raiseTo(ctx, to)
	if err != nil {
		return nil, err
	}
	return []any{&zk.CheckVersionRequest{Path: f.home.node(fenceNode), Version: version}}, nil
}

// recheck is check after the returned operation has failed.
func (f *fence) recheck(ctx context.Context) ([]any, error) {
	if _, ours := f.current(); !ours {
		return nil, fmt.Errorf("%w while the write was in flight", registry.ErrFenced)
	}
	f.raised.Store(nil)
	return f.check(ctx)
}

// raiseTo raises the node, and returns its version.
func (f *fence) raiseTo(ctx context.Context, to Fence) (int32, error) {
	if raised := f.raised.Load(); raised != nil && raised.Fence == to {
		return raised.version, nil
	}
	client, path := f.home.client, f.home.node(fenceNode)
	for range attempts {
		n, err := client.get(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = client.createAll(ctx, f.home.request(fenceNode, "0 nobody", zk.FlagPersistent))
		case err != nil:
		case string(n.data) == to.content():
			f.raised.Store(&raisedFence{to, n.stat.Version})
			return n.stat.Version, nil
		default:
			if err = to.checkLater(path, string(n.data)); err == nil {
				err = client.do(ctx, &zk.SetDataRequest{Path: path, Data: []byte(to.content()), Version: n.stat.Version})
			}
		}
		if err != nil && !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return 0, fmt.Errorf("raise %s: %w", path, err)
		}
	}
	return 0, fmt.Errorf("%w: %s keeps changing", registry.ErrConflict, path)
}
