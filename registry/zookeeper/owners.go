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

// owners reads and deletes what bridges stored in the registry about owners.
type owners struct{ client *Client }

// Owners returns the owners whose bridges wrote to the registry or read from it.
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

// Alive returns the process that runs as an owner, for messages; empty for none.
func (o owners) Alive(ctx context.Context, owner string) (string, error) {
	n, err := o.client.read(ctx, homePath(owner)+"/"+aliveNode)
	r := parseAlive(n.data)
	if err != nil || n.stat == nil || r.ended() {
		return "", err
	}
	return fmt.Sprintf("process %d on host %q", r.Process, r.Host), nil
}

// Forget deletes bridges from the list of bridges that wrote as an owner. With the last
// bridge it deletes all nodes of the owner. Entries stay.
func (o owners) Forget(ctx context.Context, owner string, bridges []string) error {
	path := homePath(owner) + "/" + bridgesNode
	n, err := o.client.read(ctx, path)
	if err != nil {
		return err
	}
	var remaining []string
	for line := range strings.Lines(string(n.data)) {
		if !slices.Contains(bridges, strings.TrimSpace(line)) {
			remaining = append(remaining, line)
		}
	}
	if len(remaining) == 0 {
		return o.client.deleteTree(ctx, homePath(owner))
	}
	data := []byte(strings.Join(remaining, ""))
	if err := o.client.do(ctx, &zk.SetDataRequest{Path: path, Data: data, Version: n.stat.Version}); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// ownerNames are the names of the owners whose bridges wrote to the registry or read from
// it, by their marks. They are read with each list of the groups, if that is allowed.
type ownerNames struct {
	owners

	mu     sync.Mutex
	byMark map[string]string
}

func (n *ownerNames) refresh(ctx context.Context) {
	names, err := n.Owners(ctx)
	if err != nil {
		return // the names of the last read stay known
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
