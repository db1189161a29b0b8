package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

var errClosed = errors.New("the client is closed")

// errOversized is wrapped where an answer is larger than one may be.
var errOversized = fmt.Errorf("%w: the answer is larger than limits.maxReceive allows", registry.ErrRefused)

// call does one request. Where ctx ends first, it fails at once; what the
// request does then is unknown, but it happens before any request made later.
func call[T any](ctx context.Context, c *Client, request func(conn) (T, error)) (T, error) {
	var zero T
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	if err := c.begin(ctx); err != nil {
		return zero, err
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer c.calls.Done()
		value, err := request(conn{c.conn, c.root})
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, c.translate(r.err)
	case <-ctx.Done():
		return zero, fmt.Errorf("zookeeper: no answer: %w", ctx.Err())
	}
}

// begin waits for a session and counts a call, which the caller takes back.
func (c *Client) begin(ctx context.Context) error {
	for {
		c.mu.Lock()
		ready := c.ready
		if c.closing {
			c.mu.Unlock()
			return fmt.Errorf("zookeeper: %w", errClosed)
		}
		if err := ctx.Err(); err != nil && c.state.Connected {
			c.mu.Unlock()
			return fmt.Errorf("zookeeper: %w", err)
		}
		if c.state.Connected {
			c.calls.Add(1)
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return c.unreachable(ctx)
		}
	}
}

func (c *Client) unreachable(ctx context.Context) error {
	last := c.State().LastError
	if last == "" {
		last = "no server has answered yet"
	}
	return fmt.Errorf("zookeeper: no session with %s: %s: %w", c.opts.Servers, last, ctx.Err())
}

// translate turns the library's errors into those of the port.
func (c *Client) translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing), errors.Is(err, zk.ErrNoServer):
		if last := c.State().LastError; last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
		return err
	case errors.Is(err, zk.ErrNoAuth):
		c.reauthenticate()
		return fmt.Errorf("%w: %w; the node's ACL does not let us: check user, passwordFile and the ACL", registry.ErrRefused, err)
	case errors.Is(err, zk.ErrNothing):
		return fmt.Errorf("%w, %d bytes: raise it", errOversized, c.opts.ReceiveLimit)
	case errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrInvalidACL),
		errors.Is(err, zk.ErrNoChildrenForEphemerals), errors.Is(err, zk.ErrShortBuffer):
		return fmt.Errorf("%w: %w", registry.ErrRefused, err)
	default:
		return err
	}
}

// The requests that the package makes.

func (c *Client) children(ctx context.Context, path string) ([]string, error) {
	return call(ctx, c, func(conn conn) ([]string, error) {
		names, _, err := conn.Children(path)
		return names, err
	})
}

// exists returns the stat of a node, nil where there is none.
func (c *Client) exists(ctx context.Context, path string) (*zk.Stat, error) {
	return call(ctx, c, func(conn conn) (*zk.Stat, error) {
		ok, stat, err := conn.Exists(path)
		if err != nil || !ok {
			return nil, err
		}
		return stat, nil
	})
}

// node is the content of a node.
type node struct {
	data []byte
	stat *zk.Stat
}

func (c *Client) get(ctx context.Context, path string) (node, error) {
	return call(ctx, c, func(conn conn) (node, error) {
		data, stat, err := conn.Get(path)
		return node{data, stat}, err
	})
}

// multi applies operations as one. If one of them failed, at is its
// index.
func (c *Client) multi(ctx context.Context, ops []any) (at int, err error) {
	results, err := call(ctx, c, func(conn conn) ([]zk.MultiResponse, error) {
		results, err := conn.Multi(ops...)
		return results, err
	})
	if err == nil {
		return 0, nil
	}
	for i, r := range results {
		if r.Error != nil {
			return i, err
		}
	}
	return -1, err
}

// make makes a node and those above it; it is no error if there is one. Those
// of the bridge's own are for whom the node is for.
func (c *Client) make(ctx context.Context, op *zk.CreateRequest) error {
	_, err := c.multi(ctx, []any{op})
	if errors.Is(err, zk.ErrNoNode) {
		parent := &zk.CreateRequest{Path: parentOf(op.Path), Data: []byte{}, Acl: aclAbove(parentOf(op.Path), op.Acl)}
		if err := c.make(ctx, parent); err != nil {
			return err
		}
		_, err = c.multi(ctx, []any{op})
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("make %s: %w", op.Path, err)
	}
	return nil
}

// mayMake returns why the ACL does not let us make a node that does not exist,
// or the first of those above it that do not: it asks for it in a transaction
// that fails in any case, so that nobody who watches is notified of anything.
func (c *Client) mayMake(ctx context.Context, path string) error {
	for parentOf(path) != "/" {
		stat, err := c.exists(ctx, parentOf(path))
		if err != nil {
			return err
		}
		if stat != nil {
			break
		}
		path = parentOf(path)
	}
	_, err := c.multi(ctx, []any{
		&zk.CreateRequest{Path: path, Data: []byte{}, Acl: zk.WorldACL(zk.PermAll)},
		&zk.CheckVersionRequest{Path: parentOf(path), Version: math.MaxInt32},
	})
	if errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}
