package app

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/config"
)

// A kind makes of the settings of one registry what differs between kinds of
// registries. Each stands in a file of its own.
type kind interface {
	keeper

	// source makes what reads the registry.
	source(b *builder, name string) (*boundSource, error)

	// connection makes what a target in the registry is reached by.
	connection(b *builder, at sinkKey) (*targetConnection, error)

	// abilities says what bridges have to know of the registry at their other end.
	abilities() abilities
}

// A keeper keeps what is ours beside entries.
type keeper interface {
	// keptID returns where the registry keeps its id; nil: it keeps none.
	keptID(b *builder, name string) *keptID

	// records connects to the registry for records; nil: it keeps none.
	records(b *builder, name string) (recordStore, error)
}

// abilities are what sets registries apart where they are bridged.
type abilities struct {
	hosts   bool           // its services are hosts: a plain name may be of several, and their protocol is not known
	subsets bool           // it says which subset endpoints are of
	imports *config.Import // how services appear that we serve into it; nil: we write entries into it
}

// kindOf returns the kind of a registry. A new one has its line here.
func kindOf(r config.Registry) kind {
	switch s := r.Section().(type) {
	case *config.Istiod:
		return meshKind{s}
	case *config.ZooKeeper:
		return zookeeperKind{s}
	case *config.Nacos:
		return nacosKind{s}
	default:
		panic(fmt.Sprintf("no kind has a section of type %T", s)) // validation told of none before
	}
}

// kind returns the kind of a registry of the configuration.
func (b *builder) kind(registry string) kind { return kindOf(b.cfg.Registries[registry]) }
