package app

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/config"
)

// A kind makes the parts of a registry that differ between kinds, from its settings. Each
// kind has a file of its own.
type kind interface {
	// source makes the source of the registry.
	source(e *Env, name string) (*boundSource, error)

	// connection makes the connection to a target in the registry.
	connection(e *Env, at targetKey) (*targetConnection, error)
}

// A storeKind is a kind of registry that keeps its id, and records.
type storeKind interface {
	idStore() *idStore
	records(e *Env, name string) (*recordStore, error)
}

// idStoreOf returns where a registry keeps its id; nil: it keeps none.
func idStoreOf(r config.Registry) *idStore {
	if k, ok := kindOf(r).(storeKind); ok {
		return k.idStore()
	}
	return nil
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
	return cfg.Registries[registry].Settings().Mesh
}
