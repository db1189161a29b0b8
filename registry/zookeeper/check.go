package zookeeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Report is what Check found out.
type Report struct {
	Server  string        // that holds the session
	Version string        // of the server; empty where it does not answer srvr
	Asked   time.Duration // session timeout
	Granted time.Duration // session timeout
	Read    error         // of the parents of the layouts; nil: they can be listed
	Write   error         // nil: a node under /xds-bridge/<owner> was made and deleted, and one could be made in each root
	Skew    time.Duration // how far the server's clock is ahead of ours, give or take Took
	Took    time.Duration // the round trip of the written node
}

// Check tries whether everything is as the target requires it, and leaves nothing
// behind. It fails where no session can be had; all else is in the report.
func (t *Target) Check(ctx context.Context) (Report, error) {
	if _, err := t.client.exists(ctx, "/"); err != nil {
		return Report{}, err
	}
	state := t.client.State()
	r := Report{
		Server: state.Server, Version: t.client.version(ctx, state.Server),
		Asked: t.client.opts.SessionTimeout, Granted: state.Timeout,
	}
	_, r.Read = t.Groups(ctx)
	r.Write = cmp.Or(t.tryHome(ctx, &r), t.mayWrite(ctx))
	return r, nil
}

// tryHome tries to write to what is the owner's own, and deletes what of it was
// not there before.
func (t *Target) tryHome(ctx context.Context, r *Report) error {
	var missing []string
	for _, path := range []string{t.home(), home} {
		stat, err := t.client.exists(ctx, path)
		if err != nil {
			return err
		}
		if stat == nil {
			missing = append(missing, path)
		}
	}
	err := t.probe(ctx, r)
	for _, path := range missing {
		_, failed := t.client.multi(ctx, []any{&zk.DeleteRequest{Path: path, Version: -1}})
		if err == nil && failed != nil && !harmless(failed, path) {
			err = fmt.Errorf("delete %s: %w", path, failed)
		}
	}
	return err
}

// probe writes a node and deletes it. It is ephemeral, so that it goes even
// if we do in between.
func (t *Target) probe(ctx context.Context, r *Report) error {
	op := t.own("probe-"+rand.Text(), "", zk.FlagEphemeral)
	if err := t.client.make(ctx, &zk.CreateRequest{Path: t.home(), Data: []byte{}, Acl: t.acl()}); err != nil {
		return err
	}
	before := time.Now()
	if err := t.client.make(ctx, op); err != nil {
		return err
	}
	r.Took = time.Since(before)
	stat, err := t.client.exists(ctx, op.Path)
	if err != nil {
		return err
	}
	if stat != nil {
		r.Skew = time.UnixMilli(stat.Ctime).Sub(before.Add(r.Took / 2)).Round(time.Millisecond)
	}
	if _, err := t.client.multi(ctx, []any{&zk.DeleteRequest{Path: op.Path, Version: -1}}); err != nil {
		return fmt.Errorf("delete %s: %w", op.Path, err)
	}
	return nil
}

// mayWrite returns why nothing can be made in the root of some layout.
func (t *Target) mayWrite(ctx context.Context) error {
	for _, l := range t.opts.Layouts {
		before, _, _ := strings.Cut(l.Parents(), "*")
		if err := t.client.mayMake(ctx, before+"xds-bridge-"+rand.Text()); err != nil {
			return err
		}
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

// version asks a server for its version; empty where it does not say, which
// most servers are set up to.
func (c *Client) version(ctx context.Context, server string) string {
	ctx, cancel := context.WithTimeout(ctx, c.opts.DialTimeout)
	defer cancel()
	conn, err := c.open(ctx, "tcp", server)
	if err != nil {
		return ""
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if conn.SetDeadline(deadline) != nil {
		return ""
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return ""
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 4<<10))
	if err != nil {
		return ""
	}
	text, ok := strings.CutPrefix(string(answer), "Zookeeper version: ")
	if !ok {
		return ""
	}
	version, _, _ := strings.Cut(text, ",")
	return strings.TrimSpace(version)
}
