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
	// Application is the name for queries by application. If Interfaces is empty, it is also
	// the interface that is provided.
	Application string

	// Interfaces are the RPC contracts that the instance provides. Consumers find each by its
	// service key.
	Interfaces []Interface

	// Process groups what one process provides under Application at several ports or over
	// several protocols. It must be unique to the process. Formats that hold several ports in
	// one instance, such as Kratos' in ZooKeeper, then write one instance. Empty: each is
	// written separately.
	Process string

	Host     string // an IP address without brackets
	Port     uint16
	Protocol string // such as tri, dubbo, grpc or http
	Weight   Weight // zero: not reported
	Zone     string // region/zone/subzone, as far as known

	// Metadata is reported to consumers if the registry can hold it. The mesh shows the
	// labels of the pod instead.
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

// interfaces returns the interfaces to publish: those of the instance, or its application.
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

// application returns the name of the instance in formats with plain names: its application,
// or otherwise its first interface.
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

// id identifies the instance within its process.
func (i Instance) id() string { return i.Application + "@" + i.Address() }

// name identifies an instance of one interface, as byInterface returns it.
func (i Instance) name() string { return i.id() + " " + i.keys()[0].String() }

// byInterface returns the instance once for each interface that it provides.
func (i Instance) byInterface() []Instance {
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

// check returns an error that names the first invalid field.
func (i Instance) check() error {
	if err := i.invalid(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func (i Instance) invalid() error {
	if _, err := netip.ParseAddr(i.Host); err != nil {
		return fmt.Errorf("instance %s: host: not an IP address that consumers can reach", naming.Quote(i.id()))
	}
	if addr, _ := netip.ParseAddr(i.Host); addr.Zone() != "" {
		return fmt.Errorf("instance %s: host: the zone %s is only known to this machine",
			naming.Quote(i.id()), naming.Quote(addr.Zone()))
	}
	if i.Protocol != "" {
		if err := metadata.CheckProtocol(strings.ToLower(i.Protocol)); err != nil {
			return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
		}
	}
	if addr, _ := netip.ParseAddr(i.Host); addr.IsUnspecified() {
		return fmt.Errorf("instance %s: host: consumers cannot reach %s; set an address of this machine",
			naming.Quote(i.id()), i.Host)
	}
	if i.Port == 0 {
		return fmt.Errorf("instance %s: port: must not be 0", naming.Quote(i.id()))
	}
	if i.Application == "" && len(i.Interfaces) == 0 {
		return errors.New("instance: application, interfaces: at least one must be set")
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

// NameOf returns the name of an instance in Publisher.Problems.
func NameOf(_ seam.Key, i Instance) string { return i.name() }

// TextOf returns the name, key or host of a query.
func TextOf(_ seam.Key, q Query) string { return q.text }
