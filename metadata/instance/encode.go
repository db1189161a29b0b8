package instance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/registry"
)

// codec is the common part of the codecs of both registries.
type codec struct {
	o         Options
	rules     []rule
	form      Form
	limit     int        // of the metadata of one instance, in bytes
	nacosForm *NacosForm // nil in ZooKeeper
}

// Kind implements metadata.Encoder.
func (c *codec) Kind() string { return c.form.Kind }

// Dependencies implements metadata.Codec: the entries are complete.
func (*codec) Dependencies([]registry.Entry) []metadata.Ref { return nil }

// site is an endpoint that can be written.
type site struct {
	endpoint *registry.Endpoint
	ports    []Port
	mark     string
	optional []pair // left out if there is no room, the last ones first
	user     map[string]string
}

// instances returns the instances of a service, and why other parts of it are left out.
func (c *codec) instances(s *registry.Service) (all []Instance, omissions []error) {
	sites, omissions := c.sites(s)
	if len(sites) == 0 {
		return nil, omissions
	}
	name, err := c.nameOf(s)
	if err != nil {
		return nil, append(omissions, err)
	}
	sites = c.form.join(sites)
	for i := range sites {
		in, err := c.instance(s, name, &sites[i])
		if err != nil {
			omissions = append(omissions, err)
		}
		if len(in.Ports) > 0 {
			all = append(all, in)
		}
	}
	return all, omissions
}

func (c *codec) sites(s *registry.Service) (all []site, omissions []error) {
	reserved := make(metadata.Reserved)
	seen := make(map[Port]struct{}, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !e.Health.Offered() {
			continue
		}
		st, err := c.site(s, e)
		if err == nil {
			if _, twice := seen[st.ports[0]]; twice {
				err = fmt.Errorf("endpoint %s exists twice", e.Address())
			}
		}
		if err != nil {
			omissions = append(omissions, err)
			continue
		}
		seen[st.ports[0]] = struct{}{}
		c.addUserAttributes(s, &st, reserved)
		all = append(all, st)
	}
	for _, err := range []error{reserved.Omission(c.form.Kind), c.pathOmission(s), c.weightOmission(s, all)} {
		if err != nil && len(all) > 0 {
			omissions = append(omissions, err)
		}
	}
	return all, omissions
}

// pathOmission returns an error about the paths that are left out, or nil if none is.
func (c *codec) pathOmission(s *registry.Service) error {
	if c.form.Paths {
		return nil
	}
	return metadata.PathOmission(s, c.form.Kind)
}

// weightOmission returns an error about the weights that are left out, or nil if none is.
func (c *codec) weightOmission(s *registry.Service, all []site) error {
	if !c.form.Weightless {
		return nil
	}
	n := 0
	for _, st := range all {
		if w := shareOf(s, st.endpoint); w != 0 && w != convert.Normal {
			n++
		}
	}
	return metadata.WeightOmission(n, c.form.Kind)
}

// shareOf returns the share of the calls of an endpoint, in hundredths of a normal share,
// or 0 if it is unknown. For a zero weight it is the minimum, because 0 would hide the
// endpoint even if there are no others.
func shareOf(s *registry.Service, e *registry.Endpoint) uint32 {
	switch {
	case e.ZeroWeight:
		return 1
	case attribute(s, e, keyMeshHost) != "":
		return convert.FromMesh(e.Weight)
	default:
		return e.Weight
	}
}

func (c *codec) site(s *registry.Service, e *registry.Endpoint) (site, error) {
	if err := metadata.CheckAddress(e.Host, e.Port); err != nil {
		return site{}, fmt.Errorf("endpoint %w", err)
	}
	protocol := strings.ToLower(c.protocolOf(s, e))
	if err := metadata.CheckProtocol(protocol); err != nil {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), err)
	}
	if c.form.Speaks != nil && !c.form.Speaks(convert.FamilyOf(protocol)) {
		return site{}, &metadata.Omission{
			Reason: fmt.Sprintf("endpoint %s speaks %s, which consumers of this format do not", e.Address(), protocol),
		}
	}
	if tag := attribute(s, e, keyTag); tag != "" && !c.o.Tags {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), metadata.TagOmission(tag))
	}
	mark, err := c.o.Mark.Of(s, e)
	if err != nil {
		return site{}, fmt.Errorf("endpoint %s: %w", e.Address(), err)
	}
	return site{
		endpoint: e, ports: []Port{{protocol, e.Host, e.Port}}, mark: mark, optional: c.optionalMetadata(s, e),
	}, nil
}

// instance returns the instance of a site. With an *metadata.Omission as its error the
// instance is valid: the error names metadata that is left out.
func (c *codec) instance(s *registry.Service, name string, st *site) (Instance, error) {
	i := Instance{
		Service: name, Ports: st.ports, Share: shareOf(s, st.endpoint), Metadata: st.user, Path: st.endpoint.URLPath,
	}
	all := make(map[string]string, len(st.optional)+4)
	if c.form.Own != nil {
		maps.Copy(all, c.form.Own(i))
	}
	if st.mark != "" {
		all[metadata.MarkKey] = st.mark
	}
	var dropped []string
	if cluster := c.cluster(s, st.endpoint); metadata.IsNacosCluster(cluster) {
		all[metadata.KeyNacosCluster] = cluster
	} else if cluster != "" {
		dropped = append(dropped, metadata.KeyNacosCluster)
	}
	if n := metadata.SizeOf(all); n > c.limit {
		return Instance{}, fmt.Errorf("endpoint %s: metadata of %d bytes, at most %d", i.Key(), n, c.limit)
	}
	if len(i.Ports) > 1 { // ports of one instance need no instance id
		st.optional = slices.DeleteFunc(st.optional, func(p pair) bool { return p == pair{keyInstance, i.Key()} })
	}
	dropped = append(dropped, addOptional(all, st.optional, c.limit)...)
	i.Metadata = all
	if len(dropped) > 0 {
		return i, &metadata.Omission{Reason: fmt.Sprintf(
			"%s: metadata over %d bytes, not UTF-8, duplicate or of an invalid cluster, left out: %.200q",
			i.Key(), c.limit, strings.Join(dropped, ", "))}
	}
	return i, nil
}

// cluster returns the cluster of an endpoint. It is empty for the default cluster, and
// in a registry without clusters, where the cluster is metadata.
func (c *codec) cluster(s *registry.Service, e *registry.Endpoint) string {
	if c.nacosForm == nil {
		return ""
	}
	return attribute(s, e, metadata.KeyNacosCluster)
}

// addOptional adds optional pairs in their order, as far as the limit allows. It returns
// the keys that it left out: those that do not fit, are not UTF-8, or have another value
// already.
func addOptional(all map[string]string, optional []pair, limit int) (dropped []string) {
	size := metadata.SizeOf(all)
	for _, p := range optional {
		n := len(p.key) + len(p.value)
		have, exists := all[p.key]
		if p.value == "" || exists && have == p.value {
			continue
		}
		if exists || size+n > limit || !utf8.ValidString(p.key) || !utf8.ValidString(p.value) {
			dropped = append(dropped, p.key)
			continue
		}
		size += n
		all[p.key] = p.value
	}
	return dropped
}

// optionalMetadata returns the metadata of an endpoint that is left out if there is no
// room, the last ones first.
func (c *codec) optionalMetadata(s *registry.Service, e *registry.Endpoint) []pair {
	region, zone := convert.RegionZone(e.Zone)
	all := make([]pair, 0, 12+len(s.Attributes)+len(e.Attributes))
	if len(s.Interfaces) == 1 {
		all = append(all, pair{keyVersion, s.Interfaces[0].Version}, pair{keyGroup, s.Interfaces[0].Group})
	}
	meshHost := attribute(s, e, keyMeshHost)
	if meshHost != "" && e.Weight != 0 {
		all = append(all, pair{keyMeshWeight, strconv.FormatUint(uint64(e.Weight), 10)})
	}
	all = append(all, pair{keyMeshLocality, e.Zone})
	if attribute(s, e, keyZone) == "" && attribute(s, e, keyRegion) == "" {
		all = append(all, pair{keyRegion, region}, pair{keyZone, zone})
	}
	all = append(all, pair{keyInstance, e.Instance})
	if c.o.Subsets {
		all = append(all, pair{keyMeshSubset, attribute(s, e, keyMeshSubset)})
	}
	all = append(all, pair{keyMeshHost, meshHost}, pair{keyMeshCluster, attribute(s, e, keyMeshCluster)})
	if c.o.Tags {
		all = append(all, pair{keyTag, attribute(s, e, keyTag)})
	}
	return all
}

// addUserAttributes adds the attributes of users to a site, and counts those under
// reserved keys.
func (c *codec) addUserAttributes(s *registry.Service, st *site, reserved metadata.Reserved) {
	mesh := attribute(s, st.endpoint, keyMeshHost) != ""
	from := len(st.optional)
	for k, v := range metadata.Attributes(s, st.endpoint) {
		switch {
		case v == "" || isOfModel(k) || mesh && k == keyTLS || c.nacosForm != nil && k == metadata.KeyNacosCluster:
		case c.isReserved(k):
			reserved[k]++
		default:
			if st.user == nil {
				st.user = make(map[string]string, len(s.Attributes)+len(st.endpoint.Attributes))
			}
			st.user[k] = v
			st.optional = append(st.optional, pair{k, v})
		}
	}
	slices.SortFunc(st.optional[from:], func(a, b pair) int { return strings.Compare(a.key, b.key) })
}

// attribute returns an attribute of an endpoint or, if that is empty, of its service.
func attribute(s *registry.Service, e *registry.Endpoint, key string) string {
	if v := e.Attributes[key]; v != "" {
		return v
	}
	return s.Attributes[key]
}

// encode implements Codec.Encode for a registry. The function write encodes an instance.
func (c *codec) encode(s *registry.Service, write func(Instance) (registry.Entry, error)) ([]registry.Entry, error) {
	all, omissions := c.instances(s)
	entries := make([]registry.Entry, 0, len(all))
	for _, i := range all {
		e, err := write(i)
		if err != nil {
			omissions = append(omissions, err)
			continue
		}
		entries = append(entries, e)
	}
	entries = registry.Sorted(entries)
	for i, err := range omissions {
		omissions[i] = fmt.Errorf("%s: %w", c.form.Kind, err)
	}
	return metadata.Encoded(slices.CompactFunc(entries, sameKey), omissions)
}

func sameKey(a, b registry.Entry) bool { return a.Group == b.Group && a.Key == b.Key }
