package dubbo

import (
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
	address  string // host and port
	iface    registry.Interface
	path     string  // at which it serves the interface
	must     []param // what makes it the provider it is
	may      []param // what is written beside that, most useful first
}

// site is an endpoint that may be written, with what all interfaces of its
// service share.
type site struct {
	protocol string
	address  string
	mark     string
	endpoint *registry.Endpoint
	tag      string // where tags are written
	may      []param
}

func (o *Options) sites(s *registry.Service, reserved func(key string) bool) (all []site, left []error) {
	if len(s.Interfaces) == 0 {
		return nil, nil
	}
	type place struct{ protocol, address string }
	seen := make(map[place]struct{}, len(s.Endpoints))
	all = make([]site, 0, len(s.Endpoints))
	unsaid := make(metadata.Reserved)
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
		at := place{st.protocol, st.address}
		if _, ok := seen[at]; ok {
			left = append(left, fmt.Errorf("endpoint %s://%s is there twice", st.protocol, st.address))
			continue
		}
		seen[at] = struct{}{}
		users(s, &st, reserved, unsaid)
		all = append(all, st)
	}
	if err := unsaid.Note("Dubbo"); err != nil {
		left = append(left, err)
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
	st := site{protocol: protocol, address: hostPort(e.Host, e.Port), mark: mark, endpoint: e, tag: attribute(s, e, paramTag), may: o.may(s, e)}
	if st.tag != "" && !o.Tags {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), metadata.Tagged(st.tag))
	}
	return st, nil
}

// markOf returns the mark of an endpoint with the path it came.
func (o *Options) markOf(s *registry.Service, e *registry.Endpoint) (string, error) {
	return o.Mark.Of(s, e) //nolint:wrapcheck // says what is wrong
}

// provider returns a provider. What room holds is overwritten.
func newProvider(s *registry.Service, iface registry.Interface, st *site, room []param) provider {
	e := st.endpoint
	p := provider{
		protocol: st.protocol, host: e.Host, port: e.Port, address: st.address, iface: iface, path: orElse(e.URLPath, iface.Name),
		must: room[:0], may: st.may,
	}
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
	return p
}

// may returns what an endpoint says beside what identifies it.
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
	return all
}

// users adds to a site what its endpoint says and the model has no field for,
// and counts what consumers of Dubbo read something else into.
func users(s *registry.Service, st *site, taken func(key string) bool, left metadata.Reserved) {
	mesh := attribute(s, st.endpoint, paramMeshHost) != ""
	from := len(st.may)
	for k, v := range metadata.Attributes(s, st.endpoint) {
		switch {
		case v == "" || ofModel(k) || mesh && k == paramMeshTLS:
		case reserved(k) || volatile(k) || taken(k):
			left[k]++
		default:
			st.may = append(st.may, param{k, v})
		}
	}
	slices.SortFunc(st.may[from:], param.compare)
}

// ofModel reports whether a key reports a field of the model, or of a mesh.
func ofModel(key string) bool {
	switch key {
	case "", paramApplication, paramMeshSubset, paramMeshHost, paramMeshCluster, paramTag:
		return true
	}
	return false
}

// attribute returns what an endpoint says of itself, or else its service.
func attribute(s *registry.Service, e *registry.Endpoint, key string) string {
	return orElse(e.Attributes[key], s.Attributes[key])
}

// encode is Codec.Encode for a form.
func (o *Options) encode(s *registry.Service, form func(provider) (registry.Entry, error)) ([]registry.Entry, error) {
	sites, left := o.sites(s, func(string) bool { return false })
	entries := make([]registry.Entry, 0, len(sites)*len(s.Interfaces))
	room := make([]param, 0, 64) // of all providers, one after the other
	for _, iface := range s.Interfaces {
		if err := checkInterface(iface); err != nil {
			left = append(left, err)
			continue
		}
		for i := range sites {
			e, err := form(newProvider(s, iface, &sites[i], room))
			if err != nil {
				left = append(left, err)
			}
			if e.Key != "" {
				entries = append(entries, e)
			}
		}
	}
	slices.SortFunc(entries, registry.Entry.Compare)
	entries = slices.CompactFunc(entries, func(a, b registry.Entry) bool {
		if sameKey(a, b) {
			left = append(left, &metadata.Unfit{Reason: b.Key + ": another protocol is written there, and the registry holds one of each address"})
		}
		return sameKey(a, b)
	})
	return metadata.Encoded(s, entries, left) //nolint:wrapcheck // the error names the service
}

func sameKey(a, b registry.Entry) bool { return a.Group == b.Group && a.Key == b.Key }

// tooMuch is the note about parameters that found no room.
func tooMuch(protocol, address string, limit int, dropped []string) error {
	if len(dropped) == 0 {
		return nil
	}
	return fmt.Errorf("%s://%s: metadata over %d bytes or not UTF-8, left out: %.200q",
		protocol, address, limit, strings.Join(dropped, ", "))
}

// Dubbo's weights. A provider without one has defaultWeight. Java reads an
// int and adds the weights of all providers up in an int, so maxWeight keeps
// the sum of two thousand providers within it.
const (
	defaultWeight = 100
	maxWeight     = 1_000_000
)

// weightOf returns the Dubbo weight of a mesh weight. In the mesh 1 is what
// an endpoint has when nobody said anything, in Dubbo it is 100: one is
// written as the other, so that mesh endpoints take an equal share beside
// providers of their own kind, and any ratio up to 1:10000 is kept. It looks
// at one endpoint only: a neighbour's weight never rewrites it.
func weightOf(mesh uint32) uint32 {
	return uint32(min(uint64(mesh)*defaultWeight, maxWeight))
}

// dubboWeight returns the weight that is written for an endpoint. It is always
// said: Java takes no weights into account where its first provider has none. A
// provider of dubbo-go that names none says 0 as others of dubbo-go do: beside one
// of 100 these would get no calls.
func dubboWeight(s *registry.Service, e *registry.Endpoint) uint32 {
	switch {
	case e.ZeroWeight, e.Weight == 0 && strings.HasPrefix(attribute(s, e, paramRelease), ofGo):
		return 0
	case e.Weight == 0:
		return defaultWeight
	case attribute(s, e, paramMeshHost) != "":
		return weightOf(e.Weight)
	default:
		return min(e.Weight, maxWeight)
	}
}

// writtenWeight is what a provider says of its weight.
type writtenWeight struct {
	mesh, dubbo string // the mesh's own and Dubbo's
	release     string // of the framework
	bridged     bool   // it came by another registry
}

// ofGo begins the releases of dubbo-go, which writes a weight of 0 where
// nobody named one.
const ofGo = "dubbo-golang-"

// read returns the weight of a provider, and whether it was written as 0: the
// mesh's own where there is one, or else Dubbo's. What is no weight counts as
// not written.
func (t writtenWeight) read() (weight uint32, zero bool) {
	text := t.mesh
	if text == "" {
		text = t.dubbo
	}
	n, err := strconv.ParseUint(text, 10, 32)
	switch {
	case text == "" && t.bridged:
		return 0, false
	case text == "", t.mesh == "" && err == nil && n == 0 && strings.HasPrefix(t.release, ofGo):
		return defaultWeight, false
	case err != nil:
		return 0, false
	default:
		return uint32(n), n == 0 && t.mesh == ""
	}
}
