package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// IDNode is where a registry keeps its own id.
const IDNode = home + "/id"

// ID returns the id that the registry keeps of itself, from which metadata.Hop
// makes the hop that stands for it in a path. Where it keeps none, it keeps
// offer from now on; of several bridges that come first at the same time, one
// wins for all. An empty offer leaves it without: then none is returned, or why
// none could be made.
func (c *Client) ID(ctx context.Context, offer string, access Access) (string, error) {
	for range 2 {
		n, err := c.get(ctx, IDNode)
		if err == nil {
			id := strings.TrimSpace(string(n.data))
			if id == "" {
				return "", fmt.Errorf("%w: %s is empty; write an id that no other registry has into it", registry.ErrRefused, IDNode)
			}
			return id, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return "", fmt.Errorf("read %s: %w", IDNode, err)
		}
		if offer == "" {
			return "", c.mayMake(ctx, IDNode)
		}
		op := &zk.CreateRequest{Path: IDNode, Data: []byte(offer), Acl: access.acl()}
		if access == Private { // it is every bridge's to read
			op.Acl = append(op.Acl, zk.WorldACL(zk.PermRead)...)
		}
		if err := c.make(ctx, op); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %s was deleted as soon as it was made", registry.ErrConflict, IDNode)
}

// NewRecorder returns what keeps records of an owner in the ensemble of a
// client, for who writes no entries there.
func NewRecorder(client *Client, owner string, access Access) registry.Recorder {
	defaultTo(&access, Open)
	return &Target{client: client, opts: TargetOptions{Owner: owner, Access: access}}
}

// TryRecord reports whether records can be kept, by a node that it makes and
// deletes. It leaves nothing behind but the parent /xds-bridge/<owner>.
func (t *Target) TryRecord(ctx context.Context) error { return t.probe(ctx, &Report{}) }

// Records implements registry.Recorder: a text is a node under
// /xds-bridge/<owner>/<kind>.
func (t *Target) Records(ctx context.Context, kind string) (map[string]string, error) {
	parent := t.home() + "/" + kind
	names, err := t.client.children(ctx, parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, fmt.Errorf("list %s: %w", parent, err)
	}
	all := make(map[string]string, len(names))
	var refused error
	for _, name := range names {
		n, err := t.client.get(ctx, parent+"/"+name)
		switch {
		case errors.Is(err, zk.ErrNoNode): // gone since
		case errors.Is(err, registry.ErrRefused):
			refused = cmp.Or(refused, fmt.Errorf("read %s/%s: %w", parent, name, err))
		case err != nil:
			return nil, fmt.Errorf("read %s/%s: %w", parent, name, err)
		default:
			all[name] = string(n.data)
		}
	}
	return all, refused //nolint:wrapcheck // it is
}

// Record implements registry.Recorder.
func (t *Target) Record(ctx context.Context, kind, name, text string) error {
	op := t.own(kind+"/"+name, text, zk.FlagPersistent)
	if n, limit := size(op), cmp.Or(t.opts.DataLimit, DefaultDataLimit); n > limit {
		return fmt.Errorf("%w: a node of %d bytes, the limit is %d", registry.ErrRefused, n, limit)
	}
	var err error
	if text == "" {
		_, err = t.client.multi(ctx, []any{&zk.DeleteRequest{Path: op.Path, Version: -1}})
	} else if _, err = t.client.multi(ctx, []any{&zk.SetDataRequest{Path: op.Path, Data: op.Data, Version: -1}}); errors.Is(err, zk.ErrNoNode) {
		return t.client.make(ctx, op)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("write %s: %w", op.Path, err)
	}
	return nil
}

// A Record is one node that the replicas of an owner change by compare and
// swap, each over a client of its own: of one target who leads it.
type Record struct {
	client *Client
	path   string
	acl    []zk.ACL
}

// NewRecord returns the record of a target of an owner.
func NewRecord(client *Client, owner, target string, access Access) (*Record, error) {
	defaultTo(&access, Open)
	if client == nil || owner == "" || target == "" {
		return nil, errors.New("zookeeper record: it needs a client, an owner and a target")
	}
	return &Record{client: client, path: homeOf(owner) + "/leases/" + url.PathEscape(target), acl: access.acl()}, nil
}

// Load returns the record and its version; nothing and no version where there
// is none.
func (r *Record) Load(ctx context.Context) ([]byte, string, error) {
	n, err := r.client.get(ctx, r.path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("read %s: %w", r.path, err)
	}
	return n.data, strconv.FormatInt(int64(n.stat.Version), 10), nil
}

// Save replaces the record if it has a version still, and makes it where that
// is empty. It returns registry.ErrConflict where another was faster.
func (r *Record) Save(ctx context.Context, record []byte, version string) error {
	var err error
	if version == "" {
		err = r.create(ctx, record)
	} else {
		v, perr := strconv.ParseInt(version, 10, 32)
		if perr != nil {
			return fmt.Errorf("version %q of %s: %w", version, r.path, perr)
		}
		_, err = r.client.multi(ctx, []any{&zk.SetDataRequest{Path: r.path, Data: record, Version: int32(v)}})
	}
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%s: %w", r.path, registry.ErrConflict)
	case err != nil:
		return fmt.Errorf("write %s: %w", r.path, err)
	}
	return nil
}

// create makes the record; it fails where another made it.
func (r *Record) create(ctx context.Context, record []byte) error {
	parent := &zk.CreateRequest{Path: parentOf(r.path), Data: []byte{}, Acl: r.acl}
	if err := r.client.make(ctx, parent); err != nil {
		return err
	}
	_, err := r.client.multi(ctx, []any{&zk.CreateRequest{Path: r.path, Data: record, Acl: r.acl}})
	return err
}

// Owners returns whom the registry remembers: those whose bridges wrote to it,
// or read from it.
func (t *Target) Owners(ctx context.Context) ([]string, error) { return t.owners(ctx) }

// owners returns whoever has a parent of its own, beside which the registry's id lies.
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
		if owner, err := url.PathUnescape(name); err == nil && home+"/"+name != IDNode {
			owners = append(owners, owner)
		}
	}
	slices.Sort(owners)
	return owners, nil
}

// Forget takes bridges out of what the registry remembers of an owner, and
// drops all that it keeps for the owner when none is left. Entries stay.
func (t *Target) Forget(ctx context.Context, owner string, bridges []string) error {
	path := homeOf(owner) + bridgesNode
	n, err := t.client.get(ctx, path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	var rest []string
	for line := range strings.Lines(string(n.data)) {
		if !slices.Contains(bridges, strings.TrimSpace(line)) {
			rest = append(rest, line)
		}
	}
	if len(rest) == 0 {
		return t.clear(ctx, homeOf(owner))
	}
	_, err = t.client.multi(ctx, []any{&zk.SetDataRequest{Path: path, Data: []byte(strings.Join(rest, "")), Version: n.stat.Version}})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// clear deletes a node of ours and all below it, but for what other processes
// keep alive.
func (t *Target) clear(ctx context.Context, path string) error {
	names, err := t.client.children(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	for _, name := range names {
		if err := t.clear(ctx, path+"/"+name); err != nil {
			return err
		}
	}
	stat, err := t.client.exists(ctx, path)
	if err != nil || stat == nil || stat.EphemeralOwner != 0 {
		return err
	}
	_, err = t.client.multi(ctx, []any{&zk.DeleteRequest{Path: path, Version: -1}})
	if err != nil && !harmless(err, path) {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// harmless reports whether a node that could not be deleted may stay: it is
// gone, or in use, or empty in what another user made, where it says nothing.
func harmless(err error, path string) bool {
	return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) || errors.Is(err, registry.ErrRefused) && (path == home || parentOf(path) == home)
}
