package dubbo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A provider is one interface at one address, before it is encoded for a registry.
type provider struct {
	*site
	iface registry.Interface
	group registry.Group
	query string // the end of the entry's key
	draft []param
}

// path returns the URL path at which a provider serves its interface.
func (p *provider) path() string { return cmp.Or(p.endpoint.URLPath, p.iface.Name) }

func (p *provider) values() values {
	v := p.site.values()
	v[rankWeight] = strconv.FormatUint(uint64(p.weight()), 10)
	return v
}

// buffers are memory that is reused for each endpoint.
type buffers struct {
	params []param
	text   []byte
}

// A site is an endpoint that can be written, with the values that all interfaces of its
// service share.
type site struct {
	*labels
	endpoint *registry.Endpoint
	protocol string
	address  string // host and port
	url      string // protocol and address
	mark     string
	buffers  *buffers
}

// labels are the attributes of an endpoint, and those attributes of its service that the
// endpoint does not override. Endpoints with equal attributes share them.
type labels struct {
	application, release, tag, meshHost string
	params                              []param  // without the application
	reserved                            []string // keys that are left out, because consumers interpret them
}

// sites returns the endpoints that can be written, and why the others cannot. It leaves
// out users' keys that the form itself uses.
func (o *options) sites(s *registry.Service, used func(key string) bool) (all []site, omissions []error) {
	if len(s.Interfaces) == 0 {
		return nil, nil
	}
	protocols := o.protocolsOf(s)
	seen := make(map[string]struct{}, len(s.Endpoints))
	all = make([]site, 0, len(s.Endpoints))
	reserved := make(metadata.Reserved)
	shared := &buffers{params: make([]param, 0, 64), text: make([]byte, 0, maxURL)}
	var l *labels // of the previous endpoint, and its attributes
	var previous registry.Attributes
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !e.Health.Offered() {
			continue
		}
		if l == nil || !maps.Equal(e.Attributes, previous) {
			l, previous = o.labels(s, e, used), e.Attributes
		}
		st, err := o.site(s, e, site{labels: l, buffers: shared}, protocols)
		if err == nil {
			if _, twice := seen[st.url]; twice {
				err = fmt.Errorf("endpoint %s exists twice", st.url)
			}
		}
		if err != nil {
			omissions = append(omissions, err)
			continue
		}
		seen[st.url] = struct{}{}
		for _, key := range l.reserved {
			reserved[key]++
		}
		all = append(all, st)
	}
	if err := reserved.Omission("Dubbo"); err != nil {
		omissions = append(omissions, err)
	}
	return all, omissions
}

func (o *options) site(s *registry.Service, e *registry.Endpoint, st site, protocols protocols) (site, error) {
	if err := checkAddress(e.Host, e.Port); err != nil {
		return site{}, fmt.Errorf("endpoint %w", err)
	}
	st.endpoint, st.protocol = e, protocols.protocolOf(e)
	if err := checkProtocol(st.protocol); err != nil {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), err)
	}
	var err error
	if st.mark, err = o.Mark.Of(s, e); err != nil {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), err)
	}
	if st.tag != "" && !o.Tags {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), metadata.TagOmission(st.tag))
	}
	st.url = string(appendHostPort(append(append(st.buffers.text[:0], st.protocol...), "://"...), e.Host, e.Port))
	st.address = st.url[len(st.protocol)+len("://"):]
	return st, nil
}

func (o *options) labels(s *registry.Service, e *registry.Endpoint, used func(key string) bool) *labels {
	get := func(key string) string { return cmp.Or(e.Attributes[key], s.Attributes[key]) }
	l := &labels{
		application: cmp.Or(e.Attributes[paramApplication], s.Application),
		release:     get(paramRelease), tag: get(paramTag), meshHost: get(paramMeshHost),
	}
	l.params = append(make([]param, 0, 24),
		param{key: metadata.MarkKey, rank: rankMark},
		param{key: paramMeshLocality, rank: rankLocality},
		param{key: paramMeshHost, value: l.meshHost, rank: rankHost},
		param{key: paramMeshCluster, value: get(paramMeshCluster), rank: rankCluster},
		param{key: paramMeshWeight, rank: rankMeshWeight},
		param{key: paramInstance, rank: rankInstance},
		param{key: paramTag, value: l.tag, rank: rankTag})
	if o.Subsets {
		l.params = append(l.params, param{key: paramMeshSubset, value: get(paramMeshSubset), rank: rankSubset})
	}
	for k, v := range metadata.Attributes(s, e) {
		switch {
		case v == "" || isOfModel(k) || l.meshHost != "" && k == paramMeshTLS:
		case isInterpreted(k) || used(k):
			l.reserved = append(l.reserved, k)
		case k == metadata.KeyNacosCluster:
			l.params = append(l.params, param{key: k, value: v, rank: rankTag})
		default:
			l.params = append(l.params, param{key: k, value: v, rank: rankUsers})
		}
	}
	return l
}

// isInterpreted reports whether consumers interpret a key themselves, so that it is not
// written for a user.
func isInterpreted(key string) bool {
	return isReserved(key) || isVolatile(key) || strings.HasPrefix(key, defaultPrefix)
}

// isOfModel reports whether a key belongs to a field of the model, or to a mesh.
func isOfModel(key string) bool {
	switch key {
	case "", paramApplication, paramMeshSubset, paramMeshHost, paramMeshCluster, paramTag:
		return true
	}
	return false
}

// values are the parameters that differ between endpoints, by rank.
type values [rankUsers]string

func (st *site) values() values {
	v := values{rankMark: st.mark, rankLocality: st.endpoint.Zone, rankInstance: st.endpoint.Instance}
	if st.meshHost != "" {
		v[rankMeshWeight] = strconv.FormatUint(uint64(max(1, st.endpoint.Weight)), 10)
	}
	return v
}

// draft returns the parameters of all endpoints with the same labels, sorted by key. The
// parameters that differ between endpoints are empty.
func (l *labels) draft(own ...param) []param {
	draft := slices.Concat(own, l.params)
	for i := range draft {
		draft[i].plain = plain(draft[i].key) && plain(draft[i].value)
	}
	slices.SortFunc(draft, compareKeys)
	return draft
}

// params returns a draft with the values of an endpoint. Empty parameters are left out.
func (st *site) params(draft []param, v *values) []param {
	all := st.buffers.params[:0]
	for _, p := range draft {
		if p.value == "" && p.rank < rankUsers {
			p.value = v[p.rank]
			p.plain = p.plain && plain(p.value)
		}
		if p.value != "" {
			all = append(all, p)
		}
	}
	return all
}

// A form defines how a registry stores providers.
type form interface {
	groupOf(i registry.Interface) registry.Group

	// own returns the parameters that only this form has.
	own() []param

	// entry returns the entry of a provider. An error together with an entry names
	// the parameters that are left out.
	entry(p *provider) (registry.Entry, error)
}

// encode implements Codec.Encode for a form.
func (o *options) encode(s *registry.Service, form form) ([]registry.Entry, error) {
	sites, omissions := o.sites(s, func(string) bool { return false })
	entries := make([]registry.Entry, 0, len(sites)*len(s.Interfaces))
	for _, iface := range s.Interfaces {
		if err := checkInterface(iface); err != nil {
			omissions = append(omissions, err)
			continue
		}
		own := append(form.own(),
			param{key: paramCategory, value: naming.Providers},
			param{key: paramInterface, value: iface.Name},
			param{key: paramVersion, value: iface.Version},
			param{key: paramGroup, value: iface.Group},
			param{key: paramSide, value: "provider"},
			param{key: paramWeight, rank: rankWeight})
		p := provider{iface: iface, group: form.groupOf(iface), query: instanceQuery(iface)}
		for i := range sites {
			st := &sites[i]
			if p.site == nil || p.labels != st.labels {
				application := param{key: paramApplication, value: st.application, rank: rankApplication}
				p.draft = st.draft(append(own, application)...)
			}
			p.site = st
			e, err := form.entry(&p)
			if err != nil {
				omissions = append(omissions, err)
			}
			if e.Key != "" {
				entries = append(entries, e)
			}
		}
	}
	entries = slices.CompactFunc(registry.Sorted(entries), func(a, b registry.Entry) bool {
		if sameKey(a, b) {
			omissions = append(omissions, &metadata.Omission{
				Reason: b.Key + ": another protocol is written at this address, and the registry holds one for each",
			})
		}
		return sameKey(a, b)
	})
	return metadata.Encoded(entries, omissions)
}

func sameKey(a, b registry.Entry) bool { return a.Group == b.Group && a.Key == b.Key }

// droppedError returns an error that names the parameters that are left out, or nil if
// none is.
func droppedError(url string, limit int, dropped []string) error {
	if len(dropped) == 0 {
		return nil
	}
	return fmt.Errorf("%s: metadata over %d bytes or not UTF-8, left out: %.200q", url, limit, strings.Join(dropped, ", "))
}

// The weights of Dubbo. A provider without a weight has defaultWeight. Java sums up the
// weights of all providers in an int, which holds two thousand times maxWeight.
const (
	defaultWeight = 100
	maxWeight     = 1_000_000
)

// weightOf returns the Dubbo weight for a mesh weight. The default is 1 in the mesh and
// 100 in Dubbo. So endpoints of a mesh and providers of Dubbo get equal shares, and
// ratios up to 1:10000 are kept. The result does not depend on other endpoints.
func weightOf(mesh uint32) uint32 {
	return uint32(min(uint64(mesh)*defaultWeight, maxWeight))
}

// weight returns the weight that is written for an endpoint. A weight is always written,
// because Java ignores all weights if the first provider has none. For a provider of
// dubbo-go without a weight it is 0, as dubbo-go itself writes: other providers of
// dubbo-go would get no calls next to one of 100.
func (st *site) weight() uint32 {
	switch e := st.endpoint; {
	case e.ZeroWeight, e.Weight == 0 && strings.HasPrefix(st.release, dubboGoRelease):
		return 0
	case e.Weight == 0:
		return defaultWeight
	case st.meshHost != "":
		return weightOf(e.Weight)
	default:
		return min(e.Weight, maxWeight)
	}
}
