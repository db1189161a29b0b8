// Package dubbogo is the seam to dubbo-go: it turns answers of a client into the
// events that dubbo-go's directory takes, with the URLs and parameters that its
// own xDS registry sent until version 3.3.0. It imports nothing of dubbo-go, so
// the registry.Registry around it is written in the application: docs/plugins.md
// shows all of it.
package dubbogo

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// The parameters of a URL, as dubbo-go's common/constant/xds.go names them.
const (
	ParamSubset  = "meshSubset"
	ParamCluster = "meshClusterID"
	ParamHost    = "meshHostAddr"
	ParamWeight  = "endPointWeight"
)

// AnyAddress as the location of a URL that is taken back stands for every
// address of its cluster.
const AnyAddress = "*"

// Action is what dubbo-go's remoting.EventType says.
type Action string

// The actions.
const (
	Update Action = "update"
	Delete Action = "delete"
)

// Event is one event for a directory.
type Event struct {
	Action Action
	URL    string // protocol://host:port/interface?parameters, for common.NewURL
}

// Query returns what a consumer of dubbo-go subscribes to.
func Query(i registry.Interface) client.Query { return client.ByInterface(i.Name, i.Version, i.Group) }

// Events returns what leads from one answer to a later one, in order: at first
// what is new or different, then what is gone. before is the zero Snapshot for a
// listener that has been told of nothing. A cluster that is gone as a whole is
// one event for AnyAddress.
func Events(i registry.Interface, before, after client.Snapshot) []Event {
	old, now := providers(i, before), providers(i, after)
	var events []Event
	for _, p := range now {
		if !slices.Contains(old, p) {
			events = append(events, Event{Update, p.url(i)})
		}
	}
	left := make(map[string]bool)
	for _, p := range now {
		left[p.cluster] = true
	}
	dropped := make(map[string]bool)
	for _, p := range old {
		switch {
		case slices.ContainsFunc(now, p.succeeds):
		case left[p.cluster] || p.cluster == "":
			events = append(events, Event{Delete, p.url(i)})
		case !dropped[p.cluster]:
			dropped[p.cluster] = true
			p.address = AnyAddress
			events = append(events, Event{Delete, p.url(i)})
		}
	}
	return events
}

// All returns the URLs of everything in an answer, for NotifyAll.
func All(i registry.Interface, s client.Snapshot) []string {
	var urls []string
	for _, p := range providers(i, s) {
		urls = append(urls, p.url(i))
	}
	return urls
}

// provider is an address in a cluster. It is comparable.
type provider struct {
	protocol, address     string
	cluster, subset, host string
	weight                uint32
}

// providers returns every address once for its service's cluster and once for
// each subset it is in: dubbo-go's router picks among those of one cluster.
func providers(i registry.Interface, s client.Snapshot) []provider {
	var all []provider
	for _, e := range s.Callable() {
		if !slices.Contains(e.Service.Interfaces, i) {
			continue
		}
		p := provider{
			protocol: cmp.Or(e.Scheme(), "tri"), address: e.Address(), weight: max(e.Weight, 1),
			cluster: e.Attribute(mesh.AttributeCluster), host: e.Attribute(mesh.AttributeHost),
		}
		all = append(all, p)
		whole, err := naming.ParseCluster(p.cluster)
		if err != nil {
			continue // no service of a mesh
		}
		for subset := range strings.SplitSeq(e.Attribute(mesh.AttributeSubset), ",") {
			if subset != "" {
				whole.Subset = subset
				p.subset, p.cluster = subset, whole.String()
				all = append(all, p)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b provider) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.address, b.address))
	})
	return all
}

// succeeds reports whether another takes the place of p in a directory, which
// knows an address of a cluster by its protocol.
func (p provider) succeeds(by provider) bool {
	return by.cluster == p.cluster && by.address == p.address && by.protocol == p.protocol
}

func (p provider) url(i registry.Interface) string {
	u := url.URL{Scheme: p.protocol, Host: p.address, Path: "/" + i.Name}
	v := url.Values{ParamWeight: {strconv.FormatUint(uint64(p.weight), 10)}}
	if p.cluster != "" {
		v.Set(ParamSubset, p.subset)
		v.Set(ParamCluster, p.cluster)
		v.Set(ParamHost, p.host)
	}
	if i.Version != "" {
		v.Set("version", i.Version)
	}
	if i.Group != "" {
		v.Set("group", i.Group)
	}
	u.RawQuery = v.Encode()
	return u.String()
}
