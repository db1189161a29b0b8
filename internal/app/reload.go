package app

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The key of a part is the text of all settings that it depends on. A part with the same
// key before and after a reload continues. A key leaves out what the part does not depend
// on, and what can change while it runs. A setting that is new to the configuration
// restarts its part, unless it is left out here.

// sourceConfig returns all of a configuration that the source of a registry is
// made of. The source sees nothing else, and the text of it is its key.
func sourceConfig(cfg *config.Config, name string) *config.Config {
	r := cfg.Registries[name].Part(config.Source)
	part := &config.Config{Owner: cfg.Owner, Registries: map[string]config.Registry{name: r}}
	if r.Metadata != "" {
		part.Registries[r.Metadata] = cfg.Registries[r.Metadata].Part(config.Source)
	}
	for _, x := range cfg.Bridges {
		if x.From != name {
			continue
		}
		read := config.Bridge{From: name, Select: x.Select, Names: x.Names}
		read.Select.Exclude = nil
		if r.Settings().Mesh == nil { // elsewhere bridges choose from all that a registry holds
			read.Formats, read.Select = x.Read(), config.Select{Allow: x.Select.Allow}
		}
		if !slices.ContainsFunc(part.Bridges, func(o config.Bridge) bool { return jsonOf(o) == jsonOf(read) }) {
			part.Bridges = append(part.Bridges, read)
		}
	}
	return part
}

func targetConnectionKey(cfg *config.Config, at config.TargetKey) string {
	r := cfg.Registries[at.Registry]
	published := ""
	var read []config.Registry // that keep what is served
	if r.Settings().Mesh != nil {
		for _, x := range cfg.BridgesTo(at) {
			read = append(read, cfg.Registries[x.From].Part(config.Source))
		}
		if kind.Of(r).Facilities().Keys != nil {
			published = keyPublisherKey(cfg, at.Registry)
		}
	}
	return jsonOf(cfg.Owner, cfg.State, at.Listen, r.Part(config.Connection), published, read)
}

// keyPublisherKey returns the key of what publishes the service keys of hosts
// that are imported into a mesh.
func keyPublisherKey(cfg *config.Config, mesh string) string {
	m := *cfg.Registries[mesh].Istiod
	m.Import, m.Mapping, m.ExportAll, m.Subsets, m.ID = config.Import{}, config.Mapping{}, false, false, ""
	// Where the mesh is read, the replicas of istiod are found by that.
	read := slices.ContainsFunc(cfg.Bridges, func(x config.Bridge) bool { return x.From == mesh })
	return jsonOf(m, read)
}

// loopKey returns the key of a target and its loop, beside its
// connection. Guards and timing are not in it: they are changed while it runs.
func loopKey(cfg *config.Config, at config.TargetKey, former []config.Use) string {
	type pipeline struct {
		Bridge config.Bridge
		From   config.Registry
	}
	var all []pipeline
	for _, x := range cfg.BridgesTo(at) {
		x.Guard = config.Guard{}
		all = append(all, pipeline{x, cfg.Registries[x.From].Part(config.Identity)})
	}
	var suffixes []string
	for _, r := range cfg.Registries {
		if m := r.Settings().Mesh; m != nil {
			suffixes = append(suffixes, m.Suffix)
		}
	}
	slices.Sort(suffixes)
	var left []string
	for _, u := range former {
		left = append(left, jsonOf(u.Bridge.Name, u.Format))
	}
	return jsonOf(cfg.Owner, all, left, cfg.Registries[at.Registry].Part(config.Loop), slices.Compact(suffixes))
}

// jsonOf returns settings as one text, equal if they are.
func jsonOf(settings ...any) string {
	raw, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("settings cannot be written down: %v", err)) // all are plain values
	}
	return string(raw)
}

// changes names the parts that a reload begins, restarts or ends.
func changes(before, after *runtime) []string {
	all := []string{}
	add := func(part, name, how string) {
		if how != "" {
			all = append(all, part+" "+name+": "+how)
		}
	}
	for _, s := range after.sources {
		switch old := before.source(s.name); {
		case old == nil:
			add("source", s.name, "begun")
		case old != s:
			add("source", s.name, "restarted")
		case before.cfg.Registries[s.name].Settings().Limits != after.cfg.Registries[s.name].Settings().Limits:
			add("source", s.name, "limits changed")
		}
	}
	for _, s := range before.sources {
		if after.source(s.name) == nil {
			add("source", s.name, "ended")
		}
	}
	for _, s := range after.targets {
		part, how := s.since(before, after)
		add(part, s.at.String(), how)
	}
	ended(before, after, add)
	if before.cfg.Log.Level != after.cfg.Log.Level {
		add("log", "level", after.cfg.Log.Level)
	}
	return all
}

// ended reports the targets and bridges that are gone.
func ended(before, after *runtime, add func(part, name, how string)) {
	for _, s := range before.targets {
		if after.target(s.at) == nil {
			how := "ended; its entries stay"
			if s.at.Listen != "" {
				how = "ended; nobody is answered there any more"
			}
			add("target", s.at.String(), how)
		}
	}
	for _, s := range after.targets {
		if before.target(s.at) == s {
			continue
		}
		for _, u := range s.formerUses {
			if leads(after, u.Bridge) && isWrittenBy(before.cfg, u) { // now, not at a reload before
				add("bridge", u.Bridge.Name, fmt.Sprintf("leaves %s; its entries there are held for approval", projection.LocationOf(before.cfg.Registries[s.at.Registry], u.Format)))
			}
		}
	}
	for _, x := range before.cfg.Bridges {
		if !leads(after, x) && after.target(x.Target()) != nil {
			add("bridge", x.Name, "leaves "+x.Target().String()+"; its entries there are held for approval as those of "+projection.BridgeMark(x.Name))
		}
	}
}

// isWrittenBy reports whether a bridge of that name writes the format by a configuration.
func isWrittenBy(cfg *config.Config, u config.Use) bool {
	r := cfg.Registries[u.Bridge.To]
	at := projection.LocationOf(r, u.Format)
	return slices.ContainsFunc(cfg.BridgesTo(u.Bridge.Target()), func(x config.Bridge) bool { return x.Name == u.Bridge.Name && projection.Writes(r, x, at) })
}

// leads reports whether a bridge leads to the same target in a runtime.
func leads(r *runtime, x config.Bridge) bool {
	return slices.ContainsFunc(r.cfg.BridgesTo(x.Target()), func(o config.Bridge) bool { return o.Name == x.Name })
}

// since says which part of a target is another than in a runtime before it.
func (t *target) since(before, after *runtime) (part, how string) {
	switch old := before.target(t.at); {
	case old == nil:
		return "target", "begun"
	case old.targetConnection != t.targetConnection:
		return "target", "connected anew"
	case old != t:
		return "loop", "restarted"
	case tunable(before.cfg, t.at) != tunable(after.cfg, t.at):
		return "loop", "guards and timing changed" + modes(before.cfg, after.cfg, t.at)
	}
	return "", ""
}

// modes names the guards of bridges to a target that change their mode, which has to be
// visible afterwards.
func modes(before, after *config.Config, at config.TargetKey) string {
	var said strings.Builder
	for _, x := range after.BridgesTo(at) {
		for _, old := range before.BridgesTo(at) {
			if old.Name == x.Name && old.Guard.Mode != x.Guard.Mode {
				fmt.Fprintf(&said, "; guard.mode of bridge %s: %s, before %s", x.Name, x.Guard.Mode, old.Guard.Mode)
			}
		}
	}
	return said.String()
}

func tunable(cfg *config.Config, at config.TargetKey) string {
	var guards []config.Guard
	for _, x := range cfg.BridgesTo(at) {
		guards = append(guards, x.Guard)
	}
	return jsonOf(guards, cfg.Registries[at.Registry].Timing)
}

// fileWatch is a file whose content may change. It is read by its name each
// time, so that links to another file, as Kubernetes renews a ConfigMap by,
// are followed.
type fileWatch struct {
	path      string
	used      [sha256.Size]byte // what was read last, whether it was valid or not
	candidate [sha256.Size]byte // what the last look found
}

func (w *fileWatch) markRead() {
	w.used, _ = w.sum()
	w.candidate = w.used
}

// lookInterval returns how long the file is left alone between two looks, so that a
// change is applied within a time: it takes two looks, and the reload itself.
func lookInterval(within time.Duration) time.Duration { return within / 3 }

// changed reports whether the file holds something new, and the same as at the look
// before: a file that is being written is left alone. One that cannot be read has not
// changed.
func (w *fileWatch) changed() bool {
	now, ok := w.sum()
	if !ok {
		return false
	}
	still := now == w.candidate
	w.candidate = now
	return still && now != w.used
}

func (w *fileWatch) sum() (sum [sha256.Size]byte, ok bool) {
	content, err := config.ReadFile(w.path)
	if err != nil {
		return sum, false
	}
	return sha256.Sum256(content), true
}

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
		from, to := was.Fixed(), is.Fixed()
		for _, at := range slices.Sorted(maps.Keys(to)) {
			if from[at] != to[at] {
				errs = append(errs, after.ErrorAt("registries."+name+at, "changes from %q to %q: %s", from[at], to[at], moveRemedy))
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
		if !stays && len(is.Settings().Servers) > 0 && slices.Equal(was.Settings().Servers, is.Settings().Servers) && maps.Equal(was.Fixed(), is.Fixed()) {
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
		if kept := kind.Of(r).Facilities().ID; kept != nil {
			asking.Go(func() { ids[i], errs[i] = kept.Ask(ctx, "") })
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

// formerUses returns the formats that bridges wrote in a target before and write no
// more, each under its bridge: the loop still looks there, so that what they
// left is held until a person decides.
func formerUses(before *runtime, cfg *config.Config, at config.TargetKey) []config.Use {
	r, old := cfg.Registries[at.Registry], before.target(at)
	if old == nil || at.Listen != "" {
		return nil
	}
	writing := func(cfg *config.Config) []config.Use {
		return slices.DeleteFunc(cfg.Uses(), func(u config.Use) bool { return u.Read || u.Bridge.Target() != at })
	}
	seen := make(map[registry.Group]bool)
	for _, u := range writing(cfg) {
		seen[projection.LocationOf(r, u.Format)] = true
	}
	return slices.DeleteFunc(append(slices.Clone(old.formerUses), writing(before.cfg)...), func(u config.Use) bool {
		p := projection.LocationOf(r, u.Format)
		covered := seen[p]
		seen[p] = true
		return covered
	})
}
