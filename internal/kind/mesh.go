package kind

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/generator"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// meshKind is a mesh that the bridge accesses through istiod.
type meshKind struct{ *config.Istiod }

func (meshKind) Title() string { return "mesh" }

func (m meshKind) Facilities() Facilities {
	f := Facilities{}
	if m.PublishesKeys() {
		f.Keys = m.publisher
	}
	return f
}

func (m meshKind) Source(e *Env, name string) (Source, error) {
	log := e.Logger("mesh", name)
	stream, err := adsOptions(m.Istiod)
	if err != nil {
		return nil, err
	}
	stream.Log, stream.Observe = log, e.Metrics.Stream(name)
	o := mesh.Options{ADS: stream, Log: log}
	if o.Naming, err = hostNaming(e.Config, name, m.ExportAll, m.Subsets); err != nil {
		return nil, err
	}
	o.Allow, o.MutualTLS = addresses(e.Config, name)
	count, heard := e.Metrics.Mapping(name), new(atomic.Int64)
	observe := func(o debug.Observation) {
		count(o)
		if o.Err == nil {
			heard.Store(time.Now().UnixNano())
		}
	}
	if err := mapping(m.Istiod, &o, e.Replicas(name, m.Address), observe); err != nil {
		return nil, err
	}
	source, err := mesh.New(o)
	if err != nil {
		return nil, err
	}
	return meshSource{source, m.Istiod, heard}, nil
}

// publisher makes a publisher that connects to every replica of istiod. If the mesh is
// read, the replicas are the endpoints of istiod's own service. Otherwise they are the
// addresses that DNS has for istiod.address.
func (m meshKind) publisher(e *Env, name string) (*keys.Publisher, error) {
	stream, err := adsOptions(m.Istiod)
	if err != nil {
		return nil, err
	}
	known := cmp.Or(e.Replicas(name, m.Address), &debug.Endpoints{})
	c := xdsCredentials(m.Istiod)
	p, err := keys.New(keys.Options{
		Node: stream.Node, Replicas: known.Behind(net.DefaultResolver, m.Address, 0),
		Dial: func(replica string) (grpc.ClientConnInterface, func(), error) {
			return dialReplica(replica, c, stream.MaxReceive)
		},
		Log: e.Logger("keys", name),
	})
	return p, err
}

type meshSource struct {
	*mesh.Source

	istiod *config.Istiod

	// heard is the time of the last successful read of the mapping, as Unix nanoseconds. The
	// goroutines of the source store it.
	heard *atomic.Int64
}

func (s meshSource) State() admin.SourceState {
	return meshState(s.Status(), mappingFrom(s.istiod), time.Unix(0, s.heard.Load()))
}

// adsOptions returns the address of istiod, the credentials and the node of the bridge.
func adsOptions(m *config.Istiod) (ads.Options, error) {
	node := ads.Identity{
		Type: m.Node.Type, IP: m.Node.Address, Name: m.Node.Name, Namespace: m.Node.Namespace,
		Domain: m.ClusterDomain, Cluster: m.Node.Cluster,
	}
	if node.IP == "" {
		node.IP = ownAddress()
	}
	if node.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return ads.Options{}, fmt.Errorf("istiod.node.name: the machine has no name: %w", err)
		}
		node.Name = host
	}
	n, err := node.Node()
	if err != nil {
		return ads.Options{}, fmt.Errorf("istiod.node: %w", err)
	}
	return ads.Options{
		Address: m.Address, Credentials: xdsCredentials(m), Node: n, MaxReceive: int(m.Limits.MaxReceive),
	}, nil
}

func xdsCredentials(m *config.Istiod) ads.Credentials {
	c := ads.Credentials{TokenFile: m.TokenFile, Insecure: m.Insecure}
	if t := m.TLS; t != nil {
		host, _, _ := net.SplitHostPort(m.Address)
		c.TLS = &ads.TLS{
			CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: cmp.Or(t.ServerName, host),
		}
	}
	return c
}

// ownAddress returns the first global address of this machine, or else loopback. istiod
// requires an address, and accepts any.
func ownAddress() string {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	return "127.0.0.1"
}

// addresses returns the addresses that the bridges which read a mesh allow, and their
// policy for mutual TLS. Validation rejects bridges that differ.
func addresses(cfg *config.Config, name string) (allow []netip.Prefix, tls mesh.MutualTLS) {
	for _, x := range cfg.Bridges {
		if x.From == name {
			allow = x.Select.Allow
			if x.Select.SkipMutualTLS {
				tls = mesh.SkipMutualTLS
			}
		}
	}
	return allow, tls
}

// hostNaming returns which hosts are services for the bridges that read a mesh.
//
//nolint:revive // exportAll and subsets are settings, not control flags
func hostNaming(cfg *config.Config, name string, exportAll, subsets bool) (mesh.Naming, error) {
	n := mesh.Naming{Subsets: subsets}
	var err error
	if n.Imported, err = projection.Patterns([]string{"*." + cfg.Registries[name].Settings().Mesh.Suffix}); err != nil {
		return n, err
	}
	if exportAll {
		if n.Plain, err = projection.Patterns([]string{"*"}); err != nil {
			return n, err
		}
	}
	limited := true
	for _, x := range cfg.Bridges {
		if x.From != name {
			continue
		}
		only, err := projection.Patterns(x.Select.Include)
		if err != nil {
			return n, err
		}
		n.Only = append(n.Only, only...)
		limited = limited && len(only) > 0
		for _, r := range x.Names {
			rule, err := ruleOf(r)
			if err != nil {
				return n, err
			}
			n.Rules = append(n.Rules, rule)
		}
	}
	if !limited { // a bridge without include reads every host
		n.Only = nil
	}
	return n, nil
}

func ruleOf(r config.NameRule) (mesh.Rule, error) {
	host, err := naming.ParsePattern(r.Host)
	if err != nil {
		return mesh.Rule{}, err
	}
	rule := mesh.Rule{Host: host, Port: r.Port}
	for _, k := range r.ServiceKeys() {
		i := registry.Interface{Name: k.Interface, Version: k.Version, Group: k.Group}
		rule.Interfaces = append(rule.Interfaces, i)
	}
	return rule, nil
}

func mappingFrom(m *config.Istiod) string {
	if m.Mapping.From != "auto" {
		return m.Mapping.From
	}
	if m.TLS != nil {
		return "debug-xds"
	}
	return "debug-http"
}

// mapping sets the reader of the service keys in the options of a mesh.
func mapping(
	m *config.Istiod, o *mesh.Options, endpoints *debug.Endpoints, observe func(debug.Observation),
) error {
	from := mappingFrom(m)
	switch from {
	case "none":
		return nil
	case "kubernetes":
		return keysByKubernetes(m, o)
	case "api":
		return keysByGenerator(m, o, observe)
	}
	d := debug.Options{
		Interval: m.Mapping.Interval.Std(), Timeout: m.Mapping.Timeout.Std(), MaxBytes: int64(m.Mapping.MaxAnswer),
		Grace: m.Mapping.Grace.Std(), ConnectionGrace: m.Mapping.ConnectionGrace.Std(), Log: o.Log, Observe: observe,
		OwnNodes: []string{ownNode(o.ADS)}, Legacy: m.Mapping.LegacyKeys,
	}
	if from == "debug-xds" {
		c := xdsCredentials(m)
		d.XDS = &debug.XDSOptions{
			Node: o.ADS.Node,
			Dial: func(replica string) (grpc.ClientConnInterface, func(), error) {
				return dialReplica(replica, c, o.ADS.MaxReceive)
			},
		}
	} else {
		d.HTTP = debugHTTP(m)
	}
	d.Replicas = replicas(m, from, o, endpoints)
	reader, err := debug.New(d)
	if err != nil {
		return err
	}
	o.Mapping = reader
	return nil
}

// keysByGenerator sets the options to read the keys of a mesh from istiod's generator "api".
func keysByGenerator(m *config.Istiod, o *mesh.Options, observe func(debug.Observation)) error {
	k, c := m.Mapping.Kubernetes, xdsCredentials(m)
	reader, err := generator.New(generator.Options{
		Dial: func() (grpc.ClientConnInterface, func(), error) {
			return dialReplica(m.Address, c, o.ADS.MaxReceive)
		},
		Address: m.Address, Node: o.ADS.Node, Keys: kube.Keys(k.Keys), Namespaces: k.Namespaces,
		Interval: m.Mapping.Interval.Std(), Timeout: m.Mapping.Timeout.Std(), MaxBytes: int64(m.Mapping.MaxAnswer),
		Log: o.Log, Observe: observe,
	})
	if err != nil {
		return err
	}
	o.Mapping = reader
	return nil
}

func dialReplica(replica string, c ads.Credentials, maxReceive int) (grpc.ClientConnInterface, func(), error) {
	conn, err := ads.Dial(replica, c, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)))
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

func debugHTTP(m *config.Istiod) *debug.HTTPOptions {
	h := &debug.HTTPOptions{TokenFile: m.TokenFile, Insecure: m.Insecure}
	if m.Node.Cluster != "Kubernetes" { // the token is from a cluster other than istiod's
		h.ClusterID = m.Node.Cluster
	}
	return h
}

// ownNode returns the bridge's node as istiod shows it: pod.namespace.
func ownNode(o ads.Options) string {
	parts := strings.Split(o.Node.GetId(), "~")
	return parts[min(2, len(parts)-1)]
}

// replicas returns a function that lists the addresses of istiod's replicas. These are
// the configured addresses, or else the endpoints of istiod's own service, or else
// istiod.address.
func replicas(
	m *config.Istiod, from string, o *mesh.Options, endpoints *debug.Endpoints,
) func(context.Context) ([]string, error) {
	if len(m.Mapping.Addresses) > 0 {
		return debug.Static(m.Mapping.Addresses...)
	}
	at := m.Address
	if from == "debug-http" { // the debug API has its own ports
		at, _, _ = net.SplitHostPort(m.Address)
	}
	service, ok := debug.ServiceOf(m.Address, m.ClusterDomain)
	if !ok {
		return debug.Static(at)
	}
	o.Istiod, o.Replicas = service, endpoints.Set
	return endpoints.Behind(net.DefaultResolver, at, debug.EndpointsTimeout)
}

// meshState returns the state of a source. heard is the time of the last successful read of
// the mapping. It may be later than the times in s, because a source reports only reads
// that changed something.
func meshState(s mesh.Status, from string, heard time.Time) admin.SourceState {
	out := admin.SourceState{
		Connected: s.Stream.Connected, Mode: s.Stream.Mode.String(), LastContact: s.Stream.Since,
		Reconnects: max(s.Stream.Epoch-1, 0), Types: types(s.Stream),
	}
	if s.Stream.Err != nil {
		out.LastError = s.Stream.Err.Error()
	}
	if from == "none" {
		return out
	}
	k := s.Mapping
	out.Mapping = &admin.Mapping{
		From: from, Complete: k.Complete, Keys: k.Mapping.Len(), Conflicts: len(k.Mapping.Conflicts()),
		Waiting: k.Waiting, Until: k.Restarting,
	}
	if k.Err != nil {
		out.Mapping.LastError = k.Err.Error()
		out.LastError = cmp.Or(out.LastError, out.Mapping.LastError)
	}
	for _, r := range k.Replicas {
		replica := admin.Replica{
			Address: r.Replica, OK: r.Err == nil && r.Answered, LastRead: r.At, Clients: r.Clients, Unlisted: r.Unlisted,
		}
		if r.Err != nil {
			replica.LastError = r.Err.Error()
		}
		if r.At.After(out.Mapping.LastRead) {
			out.Mapping.LastRead = r.At
		}
		out.Replicas = append(out.Replicas, replica)
	}
	if k.Complete && k.Err == nil && heard.After(out.Mapping.LastRead) {
		out.Mapping.LastRead = heard
	}
	return out
}

func types(s ads.State) []admin.Type {
	var all []admin.Type
	for url, t := range s.Types {
		shown := admin.Type{
			Type: path.Base(strings.ReplaceAll(url, ".", "/")), Version: t.Version, Nonce: t.Nonce,
			Resources: t.Resources, Unknown: t.Unknown, Responses: t.Responses, Nacks: t.Nacks,
		}
		if t.Err != nil {
			shown.LastError = t.Err.Error()
		}
		all = append(all, shown)
	}
	slices.SortFunc(all, func(a, b admin.Type) int { return cmp.Compare(a.Type, b.Type) })
	return all
}
