package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A place is where entries of one format lie in a registry, as every group
// there tells it: whatever its order in the file and however its registry is
// reached.
type place struct {
	kind      string // the format
	namespace string // ZooKeeper: the root; Nacos: the namespace id
	group     string // Nacos: the group
}

func (p place) String() string {
	return registry.Group{Kind: p.kind, Namespace: p.namespace, Group: p.group}.String()
}

// placeOf returns where a group lies.
func placeOf(g registry.Group) place { return place{g.Kind, g.Namespace, g.Group} }

// placed returns where a bridge writes a format.
func placed(r config.Registry, f config.Format) place {
	if r.Nacos != nil {
		return place{f.Format, r.Nacos.Namespace, f.Group}
	}
	return place{kind: f.Format, namespace: f.Root}
}

// writes reports whether a bridge writes a place.
func writes(r config.Registry, x config.Bridge, at place) bool {
	return slices.ContainsFunc(x.Formats, func(f config.Format) bool { return placed(r, f) == at })
}

// former returns the formats that bridges wrote at an end before and write no
// more, each under its bridge: the loop still looks there, so that what they
// left is shown until it is gone, and is withdrawn where that is wanted.
func (b *builder) former(at end, old *outlet) []use {
	r := b.cfg.Registries[at.registry]
	if old == nil || at.listen != "" || b.before.cfg.Owner != b.cfg.Owner || b.elsewhere[at.registry] != "" {
		return nil
	}
	all := slices.Clone(old.former)
	for _, x := range leadingTo(b.before.cfg, at) {
		for _, f := range x.Formats {
			all = append(all, use{bridge: x, format: f, registry: at.registry})
		}
	}
	seen := make(map[place]bool)
	for _, x := range leadingTo(b.cfg, at) {
		for _, f := range x.Formats {
			seen[placed(r, f)] = true
		}
	}
	return slices.DeleteFunc(all, func(u use) bool {
		p := placed(r, u.format)
		covered := seen[p]
		seen[p] = true
		return covered
	})
}

// askID is how long a registry may take to tell its id to a reload.
const askID = 5 * time.Second

// movedRegistries returns the registries that lead to another place in a new
// configuration, each with the reason. Where both can be asked, the id that a
// registry keeps of itself decides, so that a server more is no move; else
// they are the same as long as they have a server in common.
func (b *builder) movedRegistries(ctx context.Context, before, after *config.Config) map[string]string {
	moved := make(map[string]string)
	for name, is := range after.Registries {
		was, known := before.Registries[name]
		if !known || slices.Equal(servers(was), servers(is)) || kindOf(was) != kindOf(is) {
			continue
		}
		if why := b.differ(ctx, name, was, is); why != "" {
			moved[name] = why
		}
	}
	return moved
}

// differ says why two settings of a registry lead to two registries; empty
// where they lead to one.
func (b *builder) differ(ctx context.Context, name string, was, is config.Registry) string {
	ctx, cancel := context.WithTimeout(ctx, askID)
	defer cancel()
	var ids [2]string
	var errs [2]error
	var asking sync.WaitGroup
	for i, r := range []config.Registry{was, is} {
		if kept := b.keptID(name, r); kept != nil {
			asking.Go(func() { ids[i], errs[i] = kept.ask(ctx, "") })
		}
	}
	asking.Wait()
	from, to := strings.Join(servers(was), ","), strings.Join(servers(is), ",")
	switch {
	case errs[0] == nil && errs[1] == nil && ids[0] != "":
		if ids[0] == ids[1] {
			return ""
		}
		return fmt.Sprintf("changes from %q to %q, which is another registry: its id is %q and not %q", from, to, ids[1], ids[0])
	case slices.ContainsFunc(servers(was), func(s string) bool { return slices.Contains(servers(is), s) }):
		return ""
	}
	return fmt.Sprintf("changes from %q to %q, which have no server in common and do not both tell their id", from, to)
}

// servers returns the addresses of a registry, sorted and as one spells them,
// each with the chroot; of a mesh none, since nothing of ours lies there.
func servers(r config.Registry) []string {
	var all []string
	switch {
	case r.ZooKeeper != nil:
		_, chroot, _ := strings.Cut(strings.Join(r.ZooKeeper.Servers, ","), "/") // after the last
		for _, s := range r.ZooKeeper.Servers {
			host, _, _ := strings.Cut(s, "/")
			all = append(all, strings.TrimRight(host+"/"+chroot, "/"))
		}
	case r.Nacos != nil:
		for _, s := range r.Nacos.Servers {
			if u, err := url.Parse(s); err == nil {
				s = u.Host
			}
			all = append(all, s)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
