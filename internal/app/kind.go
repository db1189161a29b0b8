package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
)

// A kind makes the parts of a registry that differ between kinds, from its settings. Each
// kind has a file of its own.
type kind interface {
	// source makes the source of the registry.
	source(b *builder, name string) (*boundSource, error)

	// connection makes the connection to a target in the registry.
	connection(b *builder, at targetKey) (*targetConnection, error)

	// abilities says how the registry differs from others.
	abilities() abilities
}

// abilities are the differences between registries that matter to bridges.
type abilities struct {
	mesh    *config.Hosts // how services of others appear in it; nil: it is no mesh
	subsets bool          // it says which subset endpoints are of
	ids     *idStore      // where it keeps its id; nil: it keeps none

	// records connects to the registry for records; nil: it keeps none.
	records func(b *builder, name string) (*recordStore, error)
}

// kindOf returns the kind of a registry. A new one has its line here.
func kindOf(r config.Registry) kind {
	switch s := r.Section().(type) {
	case *config.Istiod:
		return meshKind{s}
	case *config.Kubernetes:
		return kubernetesKind{s}
	case *config.ZooKeeper:
		return zookeeperKind{s}
	case *config.Nacos:
		return nacosKind{s}
	default:
		panic(fmt.Sprintf("no kind has a section of type %T", s)) // validation reported none before
	}
}

// meshIn returns how services of others appear in a registry that is a mesh; nil: it is none.
func meshIn(cfg *config.Config, registry string) *config.Hosts {
	return kindOf(cfg.Registries[registry]).abilities().mesh
}

// Unsupported returns what a valid configuration asks for that this version
// cannot do.
func Unsupported(cfg *config.Config) config.Errors {
	if cfg == nil {
		return nil
	}
	var errs config.Errors
	first := make(map[string]int)     // the first bridge that reads a registry
	listeners := make(map[string]int) // the first bridge that listens at an address
	for i, b := range cfg.Bridges {
		path := fmt.Sprintf("bridges[%d]", i)
		errs = append(errs, badRules(cfg, path+".metadata", b.Metadata)...)
		from, to := kindOf(cfg.Registries[b.From]).abilities(), kindOf(cfg.Registries[b.To]).abilities()
		if from.mesh != nil && to.mesh != nil {
			errs = append(errs, cfg.ErrorAt(path+".to", "a bridge from a mesh into a mesh is not supported in this version: meshes join by Istio's own multi-cluster"))
		}
		if j, ok := listeners[b.Listen]; ok && b.Listen != "" && cfg.Bridges[j].To != b.To {
			errs = append(errs, cfg.ErrorAt(path+".listen", "bridges[%d] listens there for %q; each mesh must have an address of its own", j, cfg.Bridges[j].To))
		} else if !ok {
			listeners[b.Listen] = i
		}
		j, ok := first[b.From]
		if !ok {
			first[b.From] = i
			continue
		}
		if from.mesh != nil && readsOtherwise(b, cfg.Bridges[j]) {
			errs = append(errs, cfg.ErrorAt(path+".select", "allow and skipMutualTLS differ from bridges[%d], which reads %q too; "+
				"in this version all bridges that read one mesh have to agree", j, b.From))
		}
	}
	return errs
}

func badRules(cfg *config.Config, path string, m config.Metadata) config.Errors {
	if err := rulesOf(m).Check(); err != nil {
		return config.Errors{cfg.ErrorAt(path, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))}
	}
	return nil
}

// readsOtherwise reports whether two bridges ask different things of a source.
func readsOtherwise(a, b config.Bridge) bool {
	return a.Select.SkipMutualTLS != b.Select.SkipMutualTLS || !slices.Equal(a.Select.Allow, b.Select.Allow)
}
