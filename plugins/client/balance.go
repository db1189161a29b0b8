package client

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// Choose returns one of several, each as often as its weight says; none where no
// weight is above 0.
func Choose[T any](several []T, weight func(T) uint64) (one T, ok bool) {
	var total uint64
	for _, x := range several {
		total += weight(x)
	}
	if total == 0 {
		return one, false
	}
	at := rand.Uint64N(total) //nolint:gosec // spreads load, keeps no secret
	for _, x := range several {
		w := weight(x)
		if w == 0 {
			continue
		}
		one, ok = x, true // the last where a weight changed since they were added up
		if at < w {
			break
		}
		at -= w
	}
	return one, ok
}

// Subset returns which subset of its service the routes of the mesh send a call to;
// empty for anywhere. A path is that of HTTP, as "/api.Greeter/Hello".
func (e Endpoint) Subset(path string, header func(name string) (string, bool)) string {
	return e.Routes.Subset(path, header, rand.Uint64N)
}

// Header returns what Subset asks for headers, of maps that hold a text or several for
// a name in any case. Those of the first map come first.
func Header(headers ...map[string]any) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for _, some := range headers {
			for key, value := range some {
				if !strings.EqualFold(key, name) {
					continue
				}
				if several, ok := value.([]string); ok {
					return strings.Join(several, ","), true
				}
				text, ok := value.(string)
				return text, ok
			}
		}
		return "", false
	}
}

// In reports whether the endpoint is in a subset of a service.
func (e Endpoint) In(service registry.Name, subset string) bool {
	return e.Service.Name == service && slices.Contains(strings.Split(e.Attribute(mesh.AttributeSubset), ","), subset)
}
