package dubbo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// provider is one interface at one address, before it takes the form of a
// registry.
type provider struct {
	protocol string
	host     string
	port     uint16
	iface    registry.Interface
	must     []param // what makes it the provider it is
	may      []param // what is told beside that, most useful first
}

// site is an endpoint that may be written, with what all interfaces of its
// service share.
type site struct {
	protocol string
	mark     string
	endpoint *registry.Endpoint
	tag      string // where tags are written
	may      []param
}

// providers returns what is to be written for a service, and why the rest is
// left out.
func (o *Options) providers(s *registry.Service) (all []provider, left []error) {
	sites, left := o.sites(s)
	for _, iface := range s.Interfaces {
		if err := checkInterface(iface); err != nil {
			left = append(left, err)
			continue
		}
		for i := range sites {
			all = append(all, o.provider(s, iface, &sites[i]))
		}
	}
	return all, left
}

func (o *Options) sites(s *registry.Service) (all []site, left []error) {
	if len(s.Interfaces) == 0 {
		return nil, nil
	}
	seen := make(map[string]struct{}, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !e.Health.Offered() {
			continue
		}
		st, err := o.site(s, e)
		if err != nil {
			left = append(left, err)
			continue
		}
		key := st.protocol + "://" + hostPort(e.Host, e.Port)
		if _, ok := seen[key]; ok {
			left = append(left, fmt.Errorf("endpoint %s is there twice", key))
			continue
		}
		seen[key] = struct{}{}
		all = append(all, st)
	}
	return all, left
}

func (o *Options) site(s *registry.Service, e *registry.Endpoint) (site, error) {
	if err := checkAddress(e.Host, e.Port); err != nil {
		return site{}, fmt.Errorf("endpoint %w", err)
	}
	protocol := o.protocolOf(s, e)
	if err := checkProtocol(protocol); err != nil {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), err)
	}
	mark, err := o.markOf(s, e)
	if err != nil {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), err)
	}
	st := site{protocol: protocol, mark: mark, endpoint: e, may: o.may(s, e)}
	if o.Tags {
		st.tag = attribute(s, e, paramTag)
	}
	return st, nil
}

// markOf returns the mark of an endpoint with the path it came.
func (o *Options) markOf(s *registry.Service, e *registry.Endpoint) (string, error) {
	return o.Mark.Of(s, e) //nolint:wrapcheck // says what is wrong
}

func (o *Options) provider(s *registry.Service, iface registry.Interface, st *site) provider {
	e := st.endpoint
	p := provider{protocol: st.protocol, host: e.Host, port: e.Port, iface: iface, may: st.may}
	p.must = make([]param, 0, 8+len(o.Params)+len(st.may))
	add := func(key, value string) {
		if value != "" {
			p.must = append(p.must, param{key, value})
		}
	}
	add(paramCategory, "providers")
	add(paramInterface, iface.Name)
	add(paramVersion, iface.Version)
	add(paramGroup, iface.Group)
	add(paramSide, "provider")
	add(paramWeight, strconv.FormatUint(uint64(dubboWeight(s, e)), 10))
	add(metadata.MarkKey, st.mark)
	for k, v := range o.Params {
		add(k, v)
	}
	return p
}

// may returns what an endpoint tells beside what identifies it.
func (o *Options) may(s *registry.Service, e *registry.Endpoint) []param {
	all := make([]param, 0, 8+len(s.Attributes)+len(e.Attributes))
	all = append(all, param{paramApplication, orElse(e.Attributes[paramApplication], s.Application)})
	meshHost := attribute(s, e, paramMeshHost)
	if meshHost != "" {
		all = append(all, param{paramMeshWeight, strconv.FormatUint(uint64(max(1, e.Weight)), 10)})
	}
	if o.Subsets {
		all = append(all, param{paramMeshSubset, attribute(s, e, paramMeshSubset)})
	}
	all = append(all,
		param{paramMeshLocality, e.Zone},
		param{paramMeshHost, meshHost},
		param{paramMeshCluster, attribute(s, e, paramMeshCluster)},
		param{paramInstance, e.Instance})
	if o.Tags {
		all = append(all, param{paramTag, attribute(s, e, paramTag)})
	}
	var rest []string
	for k := range s.Attributes {
		if _, own := e.Attributes[k]; !own && o.passes(k) {
			rest = append(rest, k)
		}
	}
	for k := range e.Attributes {
		if o.passes(k) {
			rest = append(rest, k)
		}
	}
	slices.Sort(rest)
	for _, k := range rest {
		value, own := e.Attributes[k]
		if !own {
			value = s.Attributes[k]
		}
		all = append(all, param{k, value})
	}
	return all
}

// passes reports whether an attribute is written as it is.
func (o *Options) passes(key string) bool {
	if _, fixed := o.Params[key]; fixed {
		return false
	}
	switch key {
	case "", paramApplication, paramMeshSubset, paramMeshHost, paramMeshCluster, paramTag:
		return false
	}
	return !reserved(key) && !volatile(key)
}

// attribute returns what an endpoint says of itself, or else its service.
func attribute(s *registry.Service, e *registry.Endpoint, key string) string {
	return orElse(e.Attributes[key], s.Attributes[key])
}

// render turns the providers of a service into entries by a form.
func (o *Options) render(s *registry.Service, form func(provider) (registry.Entry, error)) ([]registry.Entry, []error) {
	all, left := o.providers(s)
	entries := make([]registry.Entry, 0, len(all))
	for _, p := range all {
		e, err := form(p)
		if err != nil {
			left = append(left, err)
		}
		if e.Key != "" {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, registry.Entry.Compare)
	return slices.CompactFunc(entries, sameKey), left
}

func sameKey(a, b registry.Entry) bool { return a.Group == b.Group && a.Key == b.Key }

// encode is Codec.Encode for a form.
func (o *Options) encode(s *registry.Service, form func(provider) (registry.Entry, error)) ([]registry.Entry, error) {
	entries, left := o.render(s, form)
	if len(entries) == 0 && len(left) > 0 {
		return nil, fmt.Errorf("%s: %w", s.Name, errors.Join(left...))
	}
	return entries, nil
}

// tooMuch is the note about parameters that found no room.
func tooMuch(p provider, limit int, dropped []string) error {
	if len(dropped) == 0 {
		return nil
	}
	return fmt.Errorf("%s://%s: metadata over %d bytes or not UTF-8, left out: %.200q",
		p.protocol, hostPort(p.host, p.port), limit, strings.Join(dropped, ", "))
}

// leftOut is Codec.LeftOut for a form.
func (o *Options) leftOut(s *registry.Service, form func(provider) (registry.Entry, error)) error {
	_, left := o.render(s, form)
	return errors.Join(left...)
}
