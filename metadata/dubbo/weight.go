package dubbo

import (
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

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
