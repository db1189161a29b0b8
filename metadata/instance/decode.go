package instance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/registry"
)

// maxKeys bounds the cost of one hostile entry.
const maxKeys = 512

// A decodedEndpoint is an endpoint that was decoded from an entry.
type decodedEndpoint struct {
	group    registry.Group
	endpoint registry.Endpoint
}

// decode implements Codec.Decode for a registry. The function read decodes an instance.
func (c *codec) decode(
	entries []registry.Entry, read func(registry.Entry) (Instance, error),
) ([]*registry.Service, []metadata.DecodeError) {
	var all []decodedEndpoint
	var failed []metadata.DecodeError
	for _, e := range entries {
		i, err := read(e)
		if err == nil {
			var endpoints []registry.Endpoint
			if endpoints, err = c.endpoints(i); err == nil {
				for _, p := range endpoints {
					all = append(all, decodedEndpoint{e.Group, p})
				}
				continue
			}
		}
		failed = append(failed, metadata.DecodeError{Entry: e, Err: err})
	}
	return c.services(all), failed
}

// endpoints returns an endpoint for each port of an instance.
func (c *codec) endpoints(i Instance) ([]registry.Endpoint, error) {
	if len(i.Metadata) > maxKeys {
		return nil, fmt.Errorf("more than %d metadata keys", maxKeys)
	}
	i.Metadata = maps.Clone(i.Metadata)
	if c.form.Extract != nil {
		if err := c.form.Extract(&i); err != nil {
			return nil, err
		}
	}
	common, err := c.commonFields(i)
	if err != nil {
		return nil, err
	}
	out := make([]registry.Endpoint, 0, len(i.Ports))
	for _, p := range i.Ports {
		e := common
		e.Host, e.Port, e.Protocol = p.Host, p.Port, cmp.Or(p.Protocol, c.o.Protocol)
		e.Attributes = maps.Clone(common.Attributes)
		if err := metadata.CheckAddress(p.Host, p.Port); err != nil {
			return nil, err
		}
		if err := metadata.CheckProtocol(e.Protocol); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// commonFields returns an endpoint with the fields that all endpoints of an instance
// have in common. It removes the keys of these fields from the metadata. The remaining
// metadata is the attributes.
func (c *codec) commonFields(i Instance) (registry.Endpoint, error) {
	m := i.Metadata
	pop := func(key string) string {
		v := m[key]
		delete(m, key)
		return v
	}
	e := registry.Endpoint{
		Health: i.Health, Weight: i.Share, URLPath: i.Path, Instance: pop(keyInstance), Zone: popLocality(m),
	}
	if mark := pop(metadata.MarkKey); mark != "" {
		parsed, err := metadata.ParseMark(mark)
		if err != nil {
			return e, err
		}
		e.Path = parsed.Path
	}
	if mesh, err := strconv.ParseUint(pop(keyMeshWeight), 10, 32); err == nil {
		e.Weight = uint32(mesh)
	} else if m[keyMeshHost] != "" {
		e.Weight /= convert.Normal
	}
	if e.Instance == "" && len(i.Ports) > 1 {
		e.Instance = i.Key()
	}
	maps.DeleteFunc(m, func(k, v string) bool { return v == "" || k == "" || c.isOfRegistration(k) })
	e.Attributes = m
	return e, nil
}

// popLocality removes the locality from metadata and returns it: that of the mesh, or
// region and zone.
func popLocality(m map[string]string) string {
	locality := m[keyMeshLocality]
	delete(m, keyMeshLocality)
	if locality == "" {
		locality = convert.Locality(m[keyRegion], m[keyZone])
	}
	if region, zone := convert.RegionZone(locality); region != "" && region == m[keyRegion] && zone == m[keyZone] {
		delete(m, keyRegion)
		delete(m, keyZone)
	}
	return locality
}

// services returns a service for each group. A service has the attributes that are equal
// for all its endpoints.
func (c *codec) services(all []decodedEndpoint) []*registry.Service {
	slices.SortStableFunc(all, func(a, b decodedEndpoint) int {
		return cmp.Or(a.group.Compare(b.group), a.endpoint.Compare(b.endpoint))
	})
	var out []*registry.Service
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].group == all[0].group {
			n++
		}
		out = append(out, c.serviceOf(all[:n]))
		all = all[n:]
	}
	return out
}

func (c *codec) serviceOf(all []decodedEndpoint) *registry.Service {
	s := &registry.Service{
		Name:        registry.Name(all[0].group.String()),
		Application: c.application(all[0].group.Name),
		Protocol:    all[0].endpoint.Protocol, // used if it loses its endpoints
		Attributes:  maps.Clone(all[0].endpoint.Attributes),
		Endpoints:   make([]registry.Endpoint, 0, len(all)),
	}
	for _, f := range all[1:] {
		maps.DeleteFunc(s.Attributes, func(k, v string) bool { return f.endpoint.Attributes[k] != v })
	}
	for _, f := range all {
		e := f.endpoint
		maps.DeleteFunc(e.Attributes, func(k, _ string) bool { return s.Attributes[k] != "" })
		if len(e.Attributes) == 0 {
			e.Attributes = nil
		}
		if n := len(s.Endpoints); n > 0 && s.Endpoints[n-1].Compare(e) == 0 {
			continue // one address registered twice
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	if len(s.Attributes) == 0 {
		s.Attributes = nil
	}
	return s
}

// application returns the plain name in the name of a service.
func (c *codec) application(service string) string {
	if c.nacosForm != nil {
		if name, ok := c.nacosForm.Parse(service); ok {
			service = name
		}
	}
	name, ok := c.parseName(service)
	if !ok {
		return service
	}
	return name
}
