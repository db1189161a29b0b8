package client

import (
	"math"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Weight is an instance's share of the calls, relative to other instances. The zero Weight
// is not reported, and counts as that of a normal instance.
type Weight struct{ hundredths, reported uint32 }

// WeightOf returns a weight: 1 is that of a normal instance, 2 receives twice as many calls,
// and 0 none while there are others. A negative part or NaN is 0.
func WeightOf(part float64) Weight {
	switch {
	case math.IsNaN(part), part <= 0:
		return Weight{0, 1}
	case part >= math.MaxUint32/convert.Normal:
		return Weight{math.MaxUint32, 1}
	}
	return Weight{max(uint32(math.Round(part*convert.Normal)), 1), 1}
}

// Part returns the argument of WeightOf, rounded to a hundredth; 1 if the weight is not
// reported.
func (w Weight) Part() float64 { return float64(w.share()) / convert.Normal }

// Reported reports whether the weight was set.
func (w Weight) Reported() bool { return w.reported > 0 }

// share returns the part in hundredths.
func (w Weight) share() uint32 {
	if !w.Reported() {
		return convert.Normal
	}
	return w.hundredths
}

// weightOf returns the weight of an endpoint. Weights in the mesh have istio's unit.
func weightOf(e registry.Endpoint, inMesh bool) Weight {
	switch {
	case e.ZeroWeight:
		return Weight{0, 1}
	case e.Weight == 0:
		return Weight{}
	case inMesh:
		return Weight{convert.FromMesh(e.Weight), 1}
	}
	return Weight{e.Weight, 1}
}
