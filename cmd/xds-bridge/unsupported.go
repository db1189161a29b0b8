package main

import (
	"fmt"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
)

// unsupported returns what a valid configuration asks for that this version
// cannot do.
func unsupported(cfg *config.Config) config.Faults {
	if cfg == nil {
		return nil
	}
	var faults config.Faults
	first := make(map[string]int) // the first bridge that reads a registry
	for i, b := range cfg.Bridges {
		path := fmt.Sprintf("bridges[%d]", i)
		from, to := cfg.Registries[b.From], cfg.Registries[b.To]
		if from.Istiod == nil {
			faults = append(faults, cfg.Fault(path+".from", "reading %q is not supported yet in this version, which reads meshes only", b.From))
		}
		if to.Istiod != nil {
			faults = append(faults, cfg.Fault(path+".to", "writing into the mesh %q is not supported yet in this version", b.To))
		}
		j, ok := first[b.From]
		if !ok {
			first[b.From] = i
			continue
		}
		o := cfg.Bridges[j]
		if !slices.Equal(b.Select.Allow, o.Select.Allow) || b.Select.SkipMutualTLS != o.Select.SkipMutualTLS {
			faults = append(faults, cfg.Fault(path+".select", "allow and skipMutualTLS differ from bridges[%d], which reads %q too; "+
				"in this version all bridges that read one mesh have to agree", j, b.From))
		}
	}
	return faults
}
