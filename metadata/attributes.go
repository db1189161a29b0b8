package metadata

import (
	"iter"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Attributes yields what an endpoint tells of itself, and what its service tells
// beside that, in no order.
func Attributes(s *registry.Service, e *registry.Endpoint) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for k, v := range e.Attributes {
			if !yield(k, v) {
				return
			}
		}
		for k, v := range s.Attributes {
			if _, own := e.Attributes[k]; !own && !yield(k, v) {
				return
			}
		}
	}
}
