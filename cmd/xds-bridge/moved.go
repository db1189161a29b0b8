package main

import (
	"maps"
	"slices"
	"strconv"

	"github.com/xds-bridge/xds-bridge/config"
)

const (
	moveRemedy  = "what was written before would stay; undo the change, or reload with --allow-move"
	ownerRemedy = "stop the bridge, take its entries over with xds-bridge adopt --from %s --yes, and start it; or undo the change"
	leaveRemedy = "what was written there would stay; set onRemove: withdraw to take it back, reload with --allow-move to leave it, or undo the change"
)

// moved returns a fault for everything that differs between two
// configurations of what says whose entries are and where they lie. A bridge
// that is new is no such thing, and for one that is gone onRemove says what
// becomes of its entries. Elsewhere are the registries that are others now.
func moved(before, after *config.Config, elsewhere map[string]string) config.Faults {
	m := moves{before: before, after: after}
	if was, is := before.Owner, after.Owner; was != is {
		m.fault("owner", "changes from %q to %q: "+ownerRemedy, was, is, was)
	}
	for _, name := range slices.Sorted(maps.Keys(after.Registries)) {
		if old, known := before.Registries[name]; known {
			for at, place := range places(after.Registries[name]) {
				m.differs("registries."+name+at, places(old)[at], place)
			}
		}
		if why := elsewhere[name]; why != "" {
			m.fault("registries."+name+"."+kindOf(after.Registries[name])+".servers", "%s: %s", why, moveRemedy)
		}
	}
	for i, x := range after.Bridges {
		j := slices.IndexFunc(before.Bridges, func(o config.Bridge) bool { return o.Name == x.Name })
		if j < 0 {
			continue
		}
		path := "bridges[" + strconv.Itoa(i) + "]"
		m.differs(path+".to", before.Bridges[j].To, x.To)
		if x.OnRemove != withdraw && before.Bridges[j].To == x.To {
			m.formats(path, before.Bridges[j], x)
		}
	}
	return m.faults
}

// moves gathers the faults of moved.
type moves struct {
	before, after *config.Config
	faults        config.Faults
}

func (m *moves) fault(path, format string, args ...any) {
	m.faults = append(m.faults, m.after.Fault(path, format, args...))
}

func (m *moves) differs(path, was, is string) {
	if was != is {
		m.fault(path, "changes from %q to %q: %s", was, is, moveRemedy)
	}
}

// formats tells of each place that a bridge wrote and writes no more. Formats
// are compared by what they are: their order says nothing.
func (m *moves) formats(path string, old, x config.Bridge) {
	was, is := m.before.Registries[old.To], m.after.Registries[x.To]
	for _, f := range old.Formats {
		at := placed(was, f)
		at.namespace = placed(is, f).namespace // another one was told of
		if writes(is, x, at) {
			continue
		}
		k := slices.IndexFunc(x.Formats, func(n config.Format) bool {
			return n.Format == f.Format && !writes(was, old, placed(was, n))
		})
		switch setting := path + ".formats[" + strconv.Itoa(k) + "]"; {
		case k < 0:
			m.fault(path+".formats", "leaves %s: %s", at, leaveRemedy)
		case f.Root != x.Formats[k].Root:
			m.fault(setting+".root", "changes from %q to %q: %s", f.Root, x.Formats[k].Root, leaveRemedy)
		default:
			m.fault(setting+".group", "changes from %q to %q: %s", f.Group, x.Formats[k].Group, leaveRemedy)
		}
	}
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
