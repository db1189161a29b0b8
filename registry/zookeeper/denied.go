package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/registry"
)

const (
	// checkedParents is the number of parents that a check lists in each root. It takes a
	// second, and finds an ACL that only some parents have.
	checkedParents = 1000

	// checkedAtOnce is the number of parents that are listed at a time.
	checkedAtOnce = 32
)

// Denied are parents that a check may not list.
type Denied struct {
	Paths   []string // in order
	Checked int      // number of parents that were tried
}

// Error returns an error that names one of the parents; nil if all may be listed.
func (d *Denied) Error() error {
	if len(d.Paths) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d parent znodes may not be read, such as %s",
		registry.ErrRefused, len(d.Paths), d.Checked, d.Paths[0])
}

// try lists parents in the root of a layout, by their names. It adds those that may not be
// listed, and fails for any other reason.
func (d *Denied) try(ctx context.Context, c *Client, layout Parents, names []string) error {
	root, suffix := splitPattern(layout)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(checkedAtOnce)
	var mu sync.Mutex
	for _, name := range names[:min(len(names), checkedParents)] {
		path := strings.TrimSuffix(root, "/") + "/" + name + suffix
		if _, ok := layout.Group(path); !ok {
			continue
		}
		d.Checked++
		group.Go(func() error {
			_, err := c.list(ctx, path)
			if !errors.Is(err, registry.ErrRefused) {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			d.Paths = append(d.Paths, path)
			return nil
		})
	}
	err := group.Wait()
	slices.Sort(d.Paths)
	return err
}
