package dubbo

import (
	"strconv"

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
// said: Java takes no weights into account where its first provider has none.
func dubboWeight(s *registry.Service, e *registry.Endpoint) uint32 {
	switch {
	case e.Weight == 0:
		return defaultWeight
	case attribute(s, e, paramMeshHost) != "":
		return weightOf(e.Weight)
	default:
		return min(e.Weight, maxWeight)
	}
}

// parseWeight reads a weight; what is no weight counts as not told.
func parseWeight(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
