package zookeeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// Report is the result of Check.
type Report struct {
	Server  string // of the session
	Version string // of the server; empty if it does not answer srvr

	// Asked and Granted are the session timeout as requested, and as the server grants it.
	Asked, Granted time.Duration

	// Read is why the roots of the layouts, or the parents in them, cannot be listed.
	Read error

	// Write is why no node could be created and deleted under /xds-bridge/<owner>, or none
	// can be created in a root.
	Write error

	Skew time.Duration // of the server's clock ahead of ours, within Took
	Took time.Duration // the round trip of the written node
}

// Check checks whether the ensemble is as the target requires it, and leaves no nodes. It
// fails if there is no session. All other errors are in the report.
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
	r.Read = cmp.Or(r.Read, t.checkParents(ctx))
	r.Write = cmp.Or(t.home.check(ctx, &r), t.checkRoots(ctx))
	return r, nil
}

// checkParents returns an error if a parent of a layout may not be listed.
func (t *Target) checkParents(ctx context.Context) error {
	var denied Denied
	for _, l := range t.opts.Layouts {
		root, _ := splitPattern(l)
		names, err := t.client.list(ctx, root)
		if err == nil {
			err = denied.try(ctx, t.client, l, names)
		}
		if err != nil {
			return err
		}
	}
	return denied.Error()
}

// checkRoots returns why no node can be created in the root of a layout.
func (t *Target) checkRoots(ctx context.Context) error {
	for _, l := range t.opts.Layouts {
		before, _, _ := strings.Cut(l.Parents(), "*")
		if err := t.client.checkCreate(ctx, before+"xds-bridge-"+rand.Text()); err != nil {
			return err
		}
	}
	return nil
}

// check returns why the owner cannot write its own nodes. It deletes the nodes above the
// probe that did not exist before.
func (h *home) check(ctx context.Context, r *Report) error {
	var missing []string
	for _, path := range []string{h.path, homeRoot} {
		stat, err := h.client.exists(ctx, path)
		if err != nil {
			return err
		}
		if stat == nil {
			missing = append(missing, path)
		}
	}
	err := h.probe(ctx, r)
	for _, path := range missing {
		if failed := h.client.delete(ctx, path); err == nil {
			err = failed
		}
	}
	return err
}

// probe creates and deletes a node. The node is ephemeral, so that it is deleted even if
// this process ends in between.
func (h *home) probe(ctx context.Context, r *Report) error {
	if err := h.client.createAll(ctx, &zk.CreateRequest{Path: h.path, Data: []byte{}, Acl: h.acl}); err != nil {
		return err
	}
	create, before := h.request("probe-"+rand.Text(), "", zk.FlagEphemeral), time.Now()
	if err := h.client.createAll(ctx, create); err != nil {
		return err
	}
	r.Took = time.Since(before)
	stat, err := h.client.exists(ctx, create.Path)
	if err != nil {
		return err
	}
	if stat != nil {
		r.Skew = time.UnixMilli(stat.Ctime).Sub(before.Add(r.Took / 2)).Round(time.Millisecond)
	}
	if err := h.client.do(ctx, &zk.DeleteRequest{Path: create.Path, Version: -1}); err != nil {
		return fmt.Errorf("delete %s: %w", create.Path, err)
	}
	return nil
}

// version returns the version of a server by its command srvr. It is empty if the command
// is disabled, as on most servers.
func (s *session) version(ctx context.Context, server string) string {
	ctx, cancel := context.WithTimeout(ctx, s.opts.DialTimeout)
	defer cancel()
	conn, err := s.open(ctx, "tcp", server)
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
