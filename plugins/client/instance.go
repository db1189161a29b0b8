package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Instance is one process that provides a service at one address.
type Instance struct {
	// Application is the name it is found under by application, and the
	// interface that it provides where Interfaces is empty.
	Application string

	// Interfaces are the RPC contracts that it provides, each found under its
	// service key.
	Interfaces []Interface

	// Process is the same for all that one process provides under Application at
	// several ports or over several protocols, and for no other process. Where the
	// format holds these as one instance, as Kratos' in ZooKeeper, they are one. Empty:
	// each is by itself.
	Process string

	Host     string // an IP address without brackets
	Port     uint16
	Protocol string // such as tri, dubbo, grpc or http
	Weight   Weight // zero: not reported
	Zone     string // region/zone/subzone, as far as known

	// Metadata is reported to consumers where the registry can hold it: the mesh
	// shows them the labels of the pod in its place.
	Metadata map[string]string
}

// Address returns host and port, an IPv6 host in brackets.
func (i Instance) Address() string { return i.endpoint().Address() }

func (i Instance) endpoint() registry.Endpoint {
	e := registry.Endpoint{
		Host: i.Host, Port: i.Port, Protocol: i.Protocol, Zone: i.Zone, Attributes: i.Metadata, Health: registry.Healthy,
	}
	if i.Weight.Reported() {
		e.Weight, e.ZeroWeight = i.Weight.share(), i.Weight.share() == 0
	}
	return e
}

// interfaces are what is published: its own, or the application as one.
func (i Instance) interfaces() []registry.Interface {
	if len(i.Interfaces) == 0 {
		return []registry.Interface{{Name: i.Application}}
	}
	all := make([]registry.Interface, 0, len(i.Interfaces))
	for _, x := range i.Interfaces {
		all = append(all, registry.Interface(x))
	}
	return all
}

// application returns the name that it is found under where services have plain
// names: its own, or that of the interface that it provides.
func (i Instance) application() string { return cmp.Or(i.Application, i.interfaces()[0].Name) }

// keys returns the service keys that the instance is found under.
func (i Instance) keys() []naming.ServiceKey {
	var keys []naming.ServiceKey
	for _, x := range i.interfaces() {
		keys = append(keys, metadata.KeyOf(x))
	}
	slices.SortFunc(keys, naming.ServiceKey.Compare)
	return slices.Compact(keys)
}

// id names the instance within its process.
func (i Instance) id() string { return i.Application + "@" + i.Address() }

// name reports what is registered of an instance apart: each interface by itself.
func (i Instance) name() string { return i.id() + " " + i.keys()[0].String() }

// each returns the instance once for each interface that it provides.
func (i Instance) each() []Instance {
	if len(i.Interfaces) < 2 {
		return []Instance{i}
	}
	all := make([]Instance, 0, len(i.Interfaces))
	for _, x := range i.Interfaces {
		one := i
		one.Interfaces = []Interface{x}
		all = append(all, one)
	}
	return all
}

// check names the field that cannot be used.
func (i Instance) check() error {
	if err := i.problem(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func (i Instance) problem() error {
	if _, err := netip.ParseAddr(i.Host); err != nil {
		return fmt.Errorf("instance %s: host: not an IP address that consumers can reach", naming.Quote(i.id()))
	}
	if addr, _ := netip.ParseAddr(i.Host); addr.Zone() != "" {
		return fmt.Errorf("instance %s: host: the zone %s is known to this machine alone", naming.Quote(i.id()), naming.Quote(addr.Zone()))
	}
	if i.Protocol != "" {
		if err := metadata.CheckProtocol(strings.ToLower(i.Protocol)); err != nil {
			return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
		}
	}
	if addr, _ := netip.ParseAddr(i.Host); addr.IsUnspecified() {
		return fmt.Errorf("instance %s: host: %s is no address that consumers can reach; give the one of this machine", naming.Quote(i.id()), i.Host)
	}
	if i.Port == 0 {
		return fmt.Errorf("instance %s: port: required", naming.Quote(i.id()))
	}
	if i.Application == "" && len(i.Interfaces) == 0 {
		return errors.New("instance: application, interfaces: at least one is required")
	}
	for _, key := range i.keys() {
		if err := key.Check(); err != nil {
			return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
		}
	}
	return nil
}

func compareInstances(a, b Instance) int { return cmp.Compare(a.name(), b.name()) }

// KeysOf returns the service keys that an instance is found under.
func KeysOf(_ seam.Key, i Instance) []naming.ServiceKey { return i.keys() }

// NameOf returns what Publisher.Problems calls an instance.
func NameOf(_ seam.Key, i Instance) string { return i.name() }

// TextOf returns what a query asks for.
func TextOf(_ seam.Key, q Query) string { return q.text }
