package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// reach returns which addresses may pass a bridge, nil where its source sees
// to that itself, as a mesh does.
func (b *builder) reach(x config.Bridge) *naming.Reach {
	if b.cfg.Registries[x.From].Istiod != nil {
		return nil
	}
	r := &naming.Reach{Allow: x.Select.Allow}
	if to := b.cfg.Registries[x.To].Istiod; to != nil {
		r.Only = append(r.Only, to.Import.Allow...)
	}
	return r
}

// project encodes a service in the formats of a bridge, as it arrives on its
// route. One format that cannot leaves the service as it is in all of them.
// The route is asked for once the bridge has begun. A signer vouches for what
// is stored where others write too; nil where nobody does.
func project(reach *naming.Reach, route func() metadata.Route, rules metadata.Rules, signer *metadata.Signer, codecs func(*registry.Service) []codec) bridge.Project {
	return func(s *registry.Service) ([]registry.Entry, error) {
		given := s
		s, refused := within(reach, s)
		none := refused != nil && offers(given) && !offers(s)
		s, loops := route().Pass(s)
		if s == nil {
			out := &bridge.LeftOut{Reason: loops}
			if errors.Is(loops, metadata.ErrReturns) {
				out.All = bridge.ReasonSynced
			}
			return nil, out
		}
		s, untold := rules.Apply(s)
		left := []error{refused, loops, untold}
		var all []registry.Entry
		for _, c := range codecs(s) {
			entries, err := c.Encode(s)
			if err != nil {
				return nil, err //nolint:wrapcheck // the codec says which part
			}
			all = append(all, entries...)
			left = append(left, c.LeftOut(s))
		}
		for i := range all {
			all[i] = signer.Sign(all[i])
		}
		if reason := errors.Join(left...); reason != nil {
			out := &bridge.LeftOut{Reason: reason}
			if none {
				out.All = bridge.ReasonInvalid
			}
			return all, out
		}
		return all, nil
	}
}

// offers reports whether a service has an endpoint for consumers.
func offers(s *registry.Service) bool {
	return slices.ContainsFunc(s.Endpoints, func(e registry.Endpoint) bool { return e.Health.Offered() })
}

// inFormats says in which formats a service is written: in all of them, or
// where a bridge keeps what it reads in one format in that, in this one.
func (b *builder) inFormats(x config.Bridge, codecs []codec) func(*registry.Service) []codec {
	from, to := b.cfg.Registries[x.From], b.cfg.Registries[x.To]
	if from.Istiod != nil || to.Istiod != nil || len(x.Reads) > 0 {
		return func(*registry.Service) []codec { return codecs }
	}
	byKind := make(map[string][]codec)
	for i, f := range x.Formats {
		byKind[f.Format] = append(byKind[f.Format], codecs[i])
	}
	return func(s *registry.Service) []codec {
		kind, _, _ := strings.Cut(string(s.Name), ":")
		return byKind[kind]
	}
}

// rules returns what of the attributes passes a bridge.
func rules(m config.Metadata) metadata.Rules {
	r := metadata.Rules{Keep: m.Keep, Drop: m.Drop, Rename: m.Rename, Add: m.Add}
	for _, v := range m.Values {
		r.Values = append(r.Values, metadata.ValueRule{Key: v.Key, From: v.From, To: v.To})
	}
	return r
}

// within returns a service without the endpoints that must not be offered,
// and why they are not.
func within(reach *naming.Reach, s *registry.Service) (*registry.Service, error) {
	if reach == nil {
		return s, nil
	}
	var refused []error
	kept := make([]registry.Endpoint, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		if reason := reach.Refuse(e.Host); reason != "" {
			refused = append(refused, fmt.Errorf("endpoint %s: %s", naming.Quote(e.Address()), reason))
			continue
		}
		kept = append(kept, e)
	}
	if len(refused) == 0 {
		return s, nil
	}
	cut := *s
	cut.Endpoints = kept
	return &cut, errors.Join(refused...)
}
