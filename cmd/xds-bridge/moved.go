package main

import (
	"maps"
	"slices"
	"strconv"

	"github.com/xds-bridge/xds-bridge/config"
)

const moveRemedy = "what was written before would stay behind; take it back first, with xds-bridge purge, " +
	"and then reload with --allow-move, or undo the change"

// moved returns a fault for everything that differs between two
// configurations of what says whose entries are and where they lie. A bridge
// that is new or gone is no such thing.
func moved(before, after *config.Config) config.Faults {
	var faults config.Faults
	differs := func(path, was, is string) {
		if was != is {
			faults = append(faults, after.Fault(path, "changes from %q to %q: %s", was, is, moveRemedy))
		}
	}
	differs("owner", before.Owner, after.Owner)
	for _, name := range slices.Sorted(maps.Keys(after.Registries)) {
		if old, known := before.Registries[name]; known {
			for at, place := range places(after.Registries[name]) {
				differs("registries."+name+at, places(old)[at], place)
			}
		}
	}
	for i, x := range after.Bridges {
		j := slices.IndexFunc(before.Bridges, func(o config.Bridge) bool { return o.Name == x.Name })
		if j < 0 {
			continue
		}
		old, path := before.Bridges[j], "bridges["+strconv.Itoa(i)+"]"
		differs(path+".to", old.To, x.To)
		for k, f := range x.Formats {
			if k < len(old.Formats) && old.Formats[k].Format == f.Format {
				at := path + ".formats[" + strconv.Itoa(k) + "]"
				differs(at+".root", old.Formats[k].Root, f.Root)
				differs(at+".group", old.Formats[k].Group, f.Group)
			}
		}
	}
	return faults
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
