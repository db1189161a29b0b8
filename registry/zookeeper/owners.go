package zookeeper

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
)

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

// ownerNames are the names of the owners whose bridges wrote to the registry, or read from
// it, by their marks. They are read with each list of the groups, as far as they may be.
type ownerNames struct {
	owners

	mu     sync.Mutex
	byMark map[string]string
}

func (n *ownerNames) refresh(ctx context.Context) {
	names, err := n.Owners(ctx)
	if err != nil {
		return // those that were read before stay known
	}
	byMark := make(map[string]string, len(names))
	for _, name := range names {
		byMark[metadata.OwnerMark(name)] = name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byMark = byMark
}

// OwnerName returns the name of the owner of a mark; empty if it is not known.
func (t *Target) OwnerName(mark string) string {
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	return t.names.byMark[mark]
}
