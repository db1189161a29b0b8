package app

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
)

const (
	moveRemedy  = "undo the change, or restart the bridge with it; what was written before stays there, unless you purge it first"
	ownerRemedy = "stop the bridge, take its entries over with xds-bridge adopt --from %s --yes, and start it; or undo the change"
)

// moved returns a fault for everything that differs between two configurations
// of who the owner is and which registries are meant. What was written before is
// out of reach of the loops after such a change, so that a person has to restart.
func (b *builder) moved(ctx context.Context, before, after *config.Config) (faults config.Faults) {
	if was, is := before.Owner, after.Owner; was != is {
		faults = append(faults, after.Fault("owner", "changes from %q to %q: "+ownerRemedy, was, is, was))
	}
	for _, name := range slices.Sorted(maps.Keys(after.Registries)) {
		was, known := before.Registries[name]
		if !known {
			if old := renamed(before, after, name); old != "" {
				faults = append(faults, after.Fault("registries."+name, "is the registry that was called %q: undo the change, or restart the bridge with it", old))
			}
			continue
		}
		is := after.Registries[name]
		for _, at := range slices.Sorted(maps.Keys(places(is))) {
			if from, to := places(was)[at], places(is)[at]; from != to {
				faults = append(faults, after.Fault("registries."+name+at, "changes from %q to %q: %s", from, to, moveRemedy))
			}
		}
		if why := b.differ(ctx, name, was, is); why != "" {
			faults = append(faults, after.Fault("registries."+name+"."+kindOf(is)+".servers", "%s: %s", why, moveRemedy))
		}
	}
	return faults
}

// renamed returns the name before of a registry that is new by its name alone: what
// is written there goes by that; empty where it is new, or the name stays in use.
func renamed(before, after *config.Config, name string) string {
	is := after.Registries[name]
	for _, old := range slices.Sorted(maps.Keys(before.Registries)) {
		was := before.Registries[old]
		_, stays := after.Registries[old]
		if !stays && len(servers(is)) > 0 && slices.Equal(servers(was), servers(is)) && maps.Equal(places(was), places(is)) {
			return old
		}
	}
	return ""
}

// askID is how long a registry may take to tell its id to a reload.
const askID = 5 * time.Second

// differ says why two settings of a registry lead to two registries; empty
// where they lead to one. Where both can be asked, the id that a registry keeps
// of itself decides, so that a server more is no move; else they are the same as
// long as they have a server in common.
func (b *builder) differ(ctx context.Context, name string, was, is config.Registry) string {
	if slices.Equal(servers(was), servers(is)) || kindOf(was) != kindOf(is) {
		return ""
	}
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

// kindOf names what a registry is.
func kindOf(r config.Registry) string {
	switch {
	case r.Istiod != nil:
		return "istiod"
	case r.ZooKeeper != nil:
		return "zookeeper"
	case r.Nacos != nil:
		return "nacos"
	}
	return ""
}

// places returns what of a registry says where entries lie and how they are
// recognised, by path.
func places(r config.Registry) map[string]string {
	switch {
	case r.Istiod != nil:
		return map[string]string{
			"": "istiod", ".istiod.id": r.Istiod.ID,
			".istiod.import.namespace": r.Istiod.Import.Namespace, ".istiod.import.suffix": r.Istiod.Import.Suffix,
		}
	case r.ZooKeeper != nil:
		return map[string]string{"": "zookeeper", ".zookeeper.id": r.ZooKeeper.ID}
	case r.Nacos != nil:
		return map[string]string{"": "nacos", ".nacos.id": r.Nacos.ID, ".nacos.namespace": r.Nacos.Namespace}
	}
	return nil
}
