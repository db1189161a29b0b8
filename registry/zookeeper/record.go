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

// IDNode is the node of a registry's own id.
const IDNode = homeRoot + "/id"

// ID returns the id that the registry keeps of itself, from which metadata.Hop
// makes the hop that identifies it in a path. A registry without one keeps offer
// from now on; of several bridges that come first at the same time, one wins for
// all. An empty offer stores none: then ID returns none, or why none could be stored.
func (c *Client) ID(ctx context.Context, offer string, access Access) (string, error) {
	for range 2 {
		n, err := c.read(ctx, IDNode)
		id := strings.TrimSpace(string(n.data))
		switch {
		case err != nil || id != "":
			return id, err
		case n.stat != nil:
			return "", fmt.Errorf("%w: %s is empty; write an id that no other registry has into it", registry.ErrRefused, IDNode)
		case offer == "":
			return "", c.checkCreate(ctx, IDNode)
		}
		op := &zk.CreateRequest{Path: IDNode, Data: []byte(offer), Acl: access.acl()}
		if access == Private { // every bridge may read it
			op.Acl = append(op.Acl, zk.WorldACL(zk.PermRead)...)
		}
		if err := c.make(ctx, op); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %s was deleted as soon as it was created", registry.ErrConflict, IDNode)
}

// recorder keeps small texts in the home of an owner.
type recorder struct{ home *home }

// NewRecorder returns a registry.Recorder of an owner for a process that writes no
// entries into the ensemble of the client.
func NewRecorder(client *Client, owner string, access Access) registry.Recorder {
	defaultTo(&access, Open)
	return recorder{newHome(client, owner, access)}
}

// TryRecord returns an error if no records can be kept, by a node that it creates and
// deletes. It leaves nothing but the parent /xds-bridge/<owner>.
func (r recorder) TryRecord(ctx context.Context) error { return r.home.probe(ctx, &Report{}) }

// Records implements registry.Recorder: a text is a node under
// /xds-bridge/<owner>/<kind>.
func (r recorder) Records(ctx context.Context, kind string) (map[string]string, error) {
	parent := r.home.node(kind)
	names, err := r.home.client.list(ctx, parent)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(names))
	var refused error
	for _, name := range names {
		n, err := r.home.client.read(ctx, parent+"/"+name)
		switch {
		case errors.Is(err, registry.ErrRefused):
			refused = cmp.Or(refused, err)
		case err != nil:
			return nil, err
		case n.stat != nil: // else it was deleted since
			all[name] = string(n.data)
		}
	}
	return all, refused //nolint:wrapcheck // read wraps it
}

// Record implements registry.Recorder.
func (r recorder) Record(ctx context.Context, kind, name, text string) error {
	create := r.home.request(kind+"/"+name, text, zk.FlagPersistent)
	if err := checkSize(create); err != nil {
		return err
	}
	var err error
	if text == "" {
		err = r.home.client.do(ctx, &zk.DeleteRequest{Path: create.Path, Version: -1})
	} else if err = r.home.client.do(ctx, &zk.SetDataRequest{Path: create.Path, Data: create.Data, Version: -1}); errors.Is(err, zk.ErrNoNode) {
		return r.home.client.make(ctx, create)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("write %s: %w", create.Path, err)
	}
	return nil
}

// A Record is one node that the replicas of an owner change by compare and
// swap, each over a client of its own: the lease of one target.
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
	h := newHome(client, owner, access)
	return &Record{client, h.node(leasesNode + "/" + url.PathEscape(target)), h.acl}, nil
}

// Load returns the record and its version; nothing and no version if there is none.
func (r *Record) Load(ctx context.Context) ([]byte, string, error) {
	n, err := r.client.read(ctx, r.path)
	if err != nil || n.stat == nil {
		return nil, "", err
	}
	return n.data, strconv.FormatInt(int64(n.stat.Version), 10), nil
}

// Save replaces the record if it still has a version, and creates it if the version
// is empty. It returns registry.ErrConflict if another replica was faster.
func (r *Record) Save(ctx context.Context, record []byte, version string) error {
	var err error
	if version == "" {
		err = r.create(ctx, record)
	} else {
		v, perr := strconv.ParseInt(version, 10, 32)
		if perr != nil {
			return fmt.Errorf("version %q of %s: %w", version, r.path, perr)
		}
		err = r.client.do(ctx, &zk.SetDataRequest{Path: r.path, Data: record, Version: int32(v)})
	}
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%s: %w", r.path, registry.ErrConflict)
	case err != nil:
		return fmt.Errorf("write %s: %w", r.path, err)
	}
	return nil
}

// create creates the record; it fails if another replica created it.
func (r *Record) create(ctx context.Context, record []byte) error {
	parent := &zk.CreateRequest{Path: parentOf(r.path), Data: []byte{}, Acl: r.acl}
	if err := r.client.make(ctx, parent); err != nil {
		return err
	}
	return r.client.do(ctx, &zk.CreateRequest{Path: r.path, Data: record, Acl: r.acl})
}

// owners reads and deletes what the registry remembers of owners.
type owners struct{ client *Client }

// Owners returns the owners whose bridges wrote to the registry, or read from it.
func (o owners) Owners(ctx context.Context) ([]string, error) {
	names, err := o.client.list(ctx, homeRoot)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		if owner, err := url.PathUnescape(name); err == nil && homeRoot+"/"+name != IDNode {
			all = append(all, owner)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Alive names the process that runs as an owner, empty for none.
func (o owners) Alive(ctx context.Context, owner string) (string, error) {
	n, err := o.client.read(ctx, homePath(owner)+"/"+aliveNode)
	r := parseAlive(n.data)
	if err != nil || n.stat == nil || r.ended() {
		return "", err
	}
	return fmt.Sprintf("process %d on host %q", r.Process, r.Host), nil
}

// Forget deletes bridges from what the registry remembers of an owner, and all that
// it keeps for the owner if none is left. Entries stay.
func (o owners) Forget(ctx context.Context, owner string, bridges []string) error {
	path := homePath(owner) + "/" + bridgesNode
	n, err := o.client.read(ctx, path)
	if err != nil {
		return err
	}
	var rest []string
	for line := range strings.Lines(string(n.data)) {
		if !slices.Contains(bridges, strings.TrimSpace(line)) {
			rest = append(rest, line)
		}
	}
	if len(rest) == 0 {
		return o.client.deleteTree(ctx, homePath(owner))
	}
	err = o.client.do(ctx, &zk.SetDataRequest{Path: path, Data: []byte(strings.Join(rest, "")), Version: n.stat.Version})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
