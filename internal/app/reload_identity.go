package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
)

const (
	moveRemedy  = "undo the change, or restart the bridge with it; what was written before stays there, unless you purge it first"
	ownerRemedy = "stop the bridge, adopt its entries with xds-bridge adopt --from %s --yes, and start it; or undo the change"
)

// identityErrors returns an error for everything that differs between two configurations
// of who the owner is and which registries are meant. What was written before is
// out of reach of the loops after such a change, so that a person has to restart.
func identityErrors(ctx context.Context, before, after *config.Config) (errs config.Errors) {
	if was, is := before.Owner, after.Owner; was != is {
		errs = append(errs, after.ErrorAt("owner", "changes from %q to %q: "+ownerRemedy, was, is, was))
	}
	for _, name := range slices.Sorted(maps.Keys(after.Registries)) {
		was, known := before.Registries[name]
		if !known {
			if old := renamed(before, after, name); old != "" {
				errs = append(errs, after.ErrorAt("registries."+name, "is the registry that was called %q: undo the change, or restart the bridge with it", old))
			}
			continue
		}
		is := after.Registries[name]
		for _, at := range slices.Sorted(maps.Keys(identity(is))) {
			if from, to := identity(was)[at], identity(is)[at]; from != to {
				errs = append(errs, after.ErrorAt("registries."+name+at, "changes from %q to %q: %s", from, to, moveRemedy))
			}
		}
		if why := whyTwoRegistries(ctx, was, is); why != "" {
			errs = append(errs, after.ErrorAt("registries."+name+"."+is.Settings().Kind+".servers", "%s: %s", why, moveRemedy))
		}
	}
	return errs
}

// renamed returns the name before of a registry that is new by its name alone: what
// is written there goes by that; empty if it is new, or the name stays in use.
func renamed(before, after *config.Config, name string) string {
	is := after.Registries[name]
	for _, old := range slices.Sorted(maps.Keys(before.Registries)) {
		was := before.Registries[old]
		_, stays := after.Registries[old]
		if !stays && len(is.Settings().Servers) > 0 && slices.Equal(was.Settings().Servers, is.Settings().Servers) && maps.Equal(identity(was), identity(is)) {
			return old
		}
	}
	return ""
}

// idTimeout is how long a registry may take to report its id to a reload.
const idTimeout = 5 * time.Second

// whyTwoRegistries says why two settings of a registry lead to two registries; empty
// where they lead to one. Where both can be asked, the id that a registry keeps
// of itself decides, so that a server more is no move; else they are the same as
// long as they have a server in common.
func whyTwoRegistries(ctx context.Context, was, is config.Registry) string {
	if slices.Equal(was.Settings().Servers, is.Settings().Servers) || was.Settings().Kind != is.Settings().Kind {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, idTimeout)
	defer cancel()
	var ids [2]string
	var errs [2]error
	var asking sync.WaitGroup
	for i, r := range []config.Registry{was, is} {
		if kept := kindOf(r).abilities().ids; kept != nil {
			asking.Go(func() { ids[i], errs[i] = kept.ask(ctx, "") })
		}
	}
	asking.Wait()
	from, to := strings.Join(was.Settings().Servers, ","), strings.Join(is.Settings().Servers, ",")
	switch {
	case errs[0] == nil && errs[1] == nil && ids[0] != "":
		if ids[0] == ids[1] {
			return ""
		}
		return fmt.Sprintf("changes from %q to %q, which is another registry: its id is %q and not %q", from, to, ids[1], ids[0])
	case slices.ContainsFunc(was.Settings().Servers, func(s string) bool { return slices.Contains(is.Settings().Servers, s) }):
		return ""
	}
	return fmt.Sprintf("changes from %q to %q, which have no server in common and do not both report their id", from, to)
}

// identity returns the settings of a registry by which entries are found and recognised,
// by path.
func identity(r config.Registry) map[string]string {
	s := r.Settings()
	all := map[string]string{"": s.Kind}
	for key, value := range s.Fixed {
		all["."+s.Kind+"."+key] = value
	}
	return all
}
