// Package kratos is a registry for Kratos through the mesh, ZooKeeper or Nacos. It implements
// registry.Registrar and registry.Discovery.
//
// An instance is published for each of its endpoints, under the service key of
// `<name>.<scheme>`. A name is looked up by these keys, and as the name of an interface or an
// application. In the mesh, an application is a Kubernetes Service.
package kratos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	klog "github.com/go-kratos/kratos/v2/log"
	kratos "github.com/go-kratos/kratos/v2/registry"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	format "github.com/xds-bridge/xds-bridge/metadata/kratos"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// Metadata that an instance reports in addition to its own.
const (
	metaID      = "kratos.id"
	metaVersion = "kratos.version"
	metaSecure  = "kratos.secure"
)

// keyVersion is the metadata key in which Kratos' own registries keep a version that has no field.
const keyVersion = "version"

// metaWeight is the metadata key in which Kratos' balancers look for a weight
// (selector/default_node.go NewNode).
const metaWeight = "weight"

// Registry implements registry.Registrar and registry.Discovery.
type Registry struct{ registry client.Registry }

// Open is client.Open with the formats of Kratos' own registries as defaults.
func Open(address string, o client.Options, kinds ...client.Kind) (*client.Client, error) {
	return adapter.Open(address, o, map[string]string{"zookeeper": format.Kind, "nacos": format.Kind}, kinds...)
}

// New returns a registry that uses a client, and does not close it.
func New(r client.Registry) *Registry { return &Registry{r} }

// Register implements registry.Registrar. It leaves out and logs endpoints that are not an IP
// address and port, such as a broker's, unless there are no others.
func (r *Registry) Register(_ context.Context, s *kratos.ServiceInstance) error {
	instances, err := instancesOf(s)
	if err != nil && len(instances) > 0 {
		klog.Warnf("endpoints left out, consumers cannot reach them: %v", err)
		err = nil
	}
	for _, i := range instances {
		err = errors.Join(err, r.registry.Register(i))
	}
	return err
}

// Deregister implements registry.Registrar. It returns when no consumer sees the instance any
// more, or when ctx ends.
func (r *Registry) Deregister(ctx context.Context, s *kratos.ServiceInstance) error {
	instances, err := instancesOf(s)
	if len(instances) > 0 {
		err = nil // Register left the other endpoints out, too
	}
	return errors.Join(err, r.registry.Deregister(ctx, instances...))
}

// instancesOf returns an instance for each endpoint.
func instancesOf(s *kratos.ServiceInstance) (all []client.Instance, err error) {
	for _, text := range s.Endpoints {
		u, bad := url.Parse(text)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("endpoint of %s: %w", s.Name, bad))
			continue
		}
		host, port, bad := client.Reachable(u.Host)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("endpoint of %s: %w", s.Name, bad))
			continue
		}
		i := client.Instance{
			Application: s.Name,
			// isSecure is metadata of the whole node, so that it separates processes.
			Process:    cmp.Or(s.ID, strings.Join(s.Endpoints, ",")) + " " + u.Query().Get("isSecure"),
			Interfaces: []client.Interface{{Name: s.Name + "." + u.Scheme}},
			Host:       host, Port: port, Protocol: u.Scheme, Metadata: maps.Clone(s.Metadata),
		}
		if i.Metadata == nil {
			i.Metadata = make(map[string]string)
		}
		if w, bad := strconv.ParseUint(i.Metadata[metaWeight], 10, 32); bad == nil {
			i.Weight = adapter.Weight(convert.Kratos().Share(max(float64(w), convert.Kratos().Min))) // 0 would mean not reported
			delete(i.Metadata, metaWeight)
		}
		if s.Version != "" {
			i.Metadata[keyVersion] = s.Version
		}
		maps.Copy(i.Metadata, map[string]string{metaID: s.ID, metaVersion: s.Version, metaSecure: u.Query().Get("isSecure")})
		maps.DeleteFunc(i.Metadata, func(_, v string) bool { return v == "" })
		all = append(all, i)
	}
	return all, err
}

// query finds the services of each scheme, and other services by the name of the application.
func query(name string) client.Query {
	all := []client.Query{client.Named(name)}
	for _, scheme := range format.Schemes() {
		all = append(all, client.ByInterface(name+"."+scheme, "", ""))
	}
	return client.AnyOf(all...)
}

// GetService implements registry.Discovery.
func (r *Registry) GetService(ctx context.Context, name string) ([]*kratos.ServiceInstance, error) {
	s, err := r.registry.Resolve(ctx, query(name))
	return servicesOf(name, s), err
}

// Watch implements registry.Discovery.
func (r *Registry) Watch(ctx context.Context, name string) (kratos.Watcher, error) {
	return &watcher{ctx: ctx, name: name, watch: r.registry.Watch(query(name))}, nil
}

type watcher struct {
	ctx       context.Context //nolint:containedctx // of Watch, as Kratos requires
	name      string
	watch     *client.Watch
	delivered bool
}

// Next implements registry.Watcher.
func (w *watcher) Next() ([]*kratos.ServiceInstance, error) {
	for {
		s, err := w.watch.Next(w.ctx)
		if errors.Is(err, client.ErrClosed) { // Kratos retries after every other error
			err = fmt.Errorf("%w: %w", context.Canceled, err)
		}
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", w.name, err)
		}
		if len(s.Endpoints) > 0 || w.delivered {
			w.delivered = true
			return servicesOf(w.name, s), nil
		}
	}
}

// Stop implements registry.Watcher.
func (w *watcher) Stop() error {
	w.watch.Stop()
	return nil
}

// servicesOf returns the instances of a snapshot, each with all of its endpoints.
func servicesOf(name string, s client.Snapshot) []*kratos.ServiceInstance {
	byID := make(map[string]*kratos.ServiceInstance)
	for _, e := range callable(s) {
		endpoint, scheme := endpointOf(e)
		id := cmp.Or(e.Attribute(metaID), e.Address())
		if byID[id] != nil && slices.ContainsFunc(byID[id].Endpoints, func(other string) bool {
			return other != endpoint && strings.HasPrefix(other, scheme+"://")
		}) {
			id = e.Address() // clients call one endpoint of each scheme, and processes may share an ID
		}
		if byID[id] == nil {
			meta := e.Attributes()
			maps.DeleteFunc(meta, func(k, _ string) bool { return strings.HasPrefix(k, "kratos.") })
			if _, own := meta[metaWeight]; !own && e.Weight.Reported() {
				meta[metaWeight] = strconv.FormatFloat(convert.Kratos().Of(max(adapter.Share(e.Weight), 1)), 'f', 0, 64)
			}
			version := cmp.Or(e.Attribute(metaVersion), e.Attribute(keyVersion))
			if meta[keyVersion] == version {
				delete(meta, keyVersion)
			}
			byID[id] = &kratos.ServiceInstance{ID: id, Name: name, Version: version, Metadata: meta}
		}
		byID[id].Endpoints = append(byID[id].Endpoints, endpoint)
	}
	all := slices.Collect(maps.Values(byID))
	for _, i := range all {
		slices.Sort(i.Endpoints)
		i.Endpoints = slices.Compact(i.Endpoints)
	}
	slices.SortFunc(all, func(a, b *kratos.ServiceInstance) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// callable returns the callable endpoints, once for each service at an address, because Kratos'
// clients choose by scheme.
func callable(s client.Snapshot) []client.Endpoint {
	calls := make(map[string]bool, len(s.Endpoints))
	for _, e := range s.Endpoints {
		calls[e.Address()] = true
	}
	return slices.DeleteFunc(s.All(), func(e client.Endpoint) bool { return !calls[e.Address()] })
}

// endpointOf returns the URL of an endpoint, with the scheme that its server registered. The
// default is grpc, as in a mesh, which does not report the scheme.
func endpointOf(e client.Endpoint) (endpoint, scheme string) {
	scheme = "grpc"
	for _, i := range e.Interfaces() {
		if at := strings.LastIndexByte(i.Name, '.'); slices.Contains(format.Schemes(), i.Name[at+1:]) {
			scheme = i.Name[at+1:]
		}
	}
	if p := convert.Scheme(e.Protocol); p != "" && p != "tcp" { // the format plain reports tcp by default
		scheme = p
	}
	u := url.URL{Scheme: scheme, Host: e.Address()}
	if e.Attribute(metaSecure) == "true" {
		u.RawQuery = "isSecure=true"
	}
	return u.String(), scheme
}
