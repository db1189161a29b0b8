package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"
)

// SourceReport is the result of Check.
type SourceReport struct {
	State   State    // of the connection
	Parents int      // number of parents in the roots of all formats
	Absent  []string // roots that do not exist
	Denied  Denied   // parents that may not be listed
	Rules   []string // paths with rules that the source ignores, see Ruled
}

// Check lists the root of every format, and the parents in it, over its own connection.
func (s *Source) Check(ctx context.Context) (SourceReport, error) {
	var r SourceReport
	client, err := Dial(s.conn) //nolint:contextcheck // it ends by Close
	if err != nil {
		return r, err
	}
	defer client.Close()
	for _, f := range s.opts.Formats {
		root, _ := splitPattern(f)
		n, err := client.query(ctx, query{path: root, kind: ofChildren})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			r.Absent = append(r.Absent, root)
		case err != nil:
			r.State = client.State()
			return r, fmt.Errorf("list %s: %w", root, err)
		}
		r.Parents += len(n.children)
		if err := r.Denied.try(ctx, client, f, n.children); err != nil {
			r.State = client.State()
			return r, err
		}
		rules, err := rulesOf(ctx, client, f, n.children)
		if err != nil {
			r.State = client.State()
			return r, err
		}
		r.Rules = append(r.Rules, rules...)
	}
	r.State = client.State()
	return r, nil
}

// rulesOf returns the paths with rules for the services of a format. Paths that may not be
// read are left out.
func rulesOf(ctx context.Context, c *Client, f Format, names []string) ([]string, error) {
	ruled, ok := f.(Ruled)
	if !ok {
		return nil, nil
	}
	var found []string
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for _, name := range names {
		for _, path := range ruled.Rules(name) {
			g.Go(func() error {
				n, err := c.query(ctx, query{path: path, kind: ofChildren})
				if err != nil && !errors.Is(err, zk.ErrNoNode) && !isLocal(err) {
					return fmt.Errorf("list %s: %w", path, err)
				}
				if len(n.children) > 0 {
					mu.Lock()
					defer mu.Unlock()
					found = append(found, path)
				}
				return nil
			})
		}
	}
	err := g.Wait()
	slices.Sort(found)
	return found, err
}
