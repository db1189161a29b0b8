// Package convert converts weights, protocols and localities between formats. It is
// pure.
package convert

import (
	"math"
	"strings"
)

// Normal is the share of the calls that a default weight means. Shares are in hundredths
// of it. The weight of a registry.Endpoint is in this unit, except in a mesh, where it
// is Istio's, see FromMesh.
const Normal = 100

// A Scale is the unit and the range of a format's weights.
type Scale struct {
	Normal   float64 // the weight of a normal share
	Min, Max float64 // the range of weights that are written
	Whole    bool    // without fractions
}

// Nacos returns the scale of Nacos's own weights. The scales are:
//
//	            normal   least      most      whole   absent   0
//	istio            1       1      2^32-1    yes     1        as absent
//	Dubbo          100       1   1,000,000    yes     100      as absent (dubbo-go writes it so)
//	Nacos          1.0    0.01      10,000    no      1.0      gets no calls
//	Kratos         100       1   1,000,000    yes     100      gets no calls
//	Kitex           10       1   1,000,000    yes     never    gets no calls
//	Hertz           10       1   1,000,000    yes     10       as absent
//
// The registry Nacos accepts no more than 10,000 in any format.
func Nacos() Scale { return Scale{Normal: 1, Min: 0.01, Max: 10_000} }

// Kratos returns the scale of Kratos, also in Nacos.
func Kratos() Scale { return Scale{Normal: 100, Min: 1, Max: maxShare, Whole: true} }

// CloudWeGo returns the scale of Hertz and Kitex, also in Nacos.
func CloudWeGo() Scale { return Scale{Normal: 10, Min: 1, Max: maxShare, Whole: true} }

// Of returns the weight of a share in hundredths. The share 0 is unknown and counts as
// the normal one.
func (s Scale) Of(share uint32) float64 {
	if share == 0 {
		share = Normal
	}
	w := float64(share) / Normal * s.Normal
	if s.Whole {
		w = math.Round(w)
	}
	return min(max(w, s.Min), s.Max)
}

// Share returns the share of a weight in hundredths: at least 1 for a positive weight,
// and 0 for any other.
func (s Scale) Share(weight float64) uint32 {
	share := math.Round(weight / s.Normal * Normal)
	switch {
	case math.IsNaN(share) || weight <= 0:
		return 0
	case share < 1:
		return 1
	case share > math.MaxUint32:
		return math.MaxUint32
	default:
		return uint32(share)
	}
}

// maxShare keeps the sum of two thousand weights within 32 bits, because consumers add
// weights.
const maxShare = 1_000_000

// FromMesh returns the share of an Istio weight, whose normal value is 1.
func FromMesh(weight uint32) uint32 { return uint32(min(uint64(weight)*Normal, maxShare)) }

// Locality joins a region and a zone as Istio does. It is empty without a region.
func Locality(region, zone string) string {
	if region == "" || zone == "" || strings.Contains(region+zone, "/") {
		return region
	}
	return region + "/" + zone
}

// RegionZone splits a locality.
func RegionZone(locality string) (region, zone string) {
	region, rest, _ := strings.Cut(locality, "/")
	zone, _, _ = strings.Cut(rest, "/")
	return region, zone
}

// Family is a set of protocols. A consumer that speaks one of them speaks all.
type Family string

// The families.
const (
	HTTP  Family = "http"  // http, https, http2, rest
	GRPC  Family = "grpc"  // grpc, grpcs, tri
	Other Family = "other" // all others
)

// FamilyOf returns the family of a protocol.
func FamilyOf(protocol string) Family {
	switch strings.ToLower(protocol) {
	case "http", "https", "http2", "rest":
		return HTTP
	case "grpc", "grpcs", "tri":
		return GRPC
	default:
		return Other
	}
}

// Known reports whether a text is the name of a protocol.
func Known(protocol string) bool {
	switch p := strings.ToLower(protocol); p {
	case "dubbo", "thrift", "tcp", "tls", "udp", "ws", "wss", "mongo", "redis", "mysql":
		return true
	default:
		return FamilyOf(p) != Other
	}
}

// Secure reports whether a protocol is over TLS.
func Secure(protocol string) bool {
	switch strings.ToLower(protocol) {
	case "https", "grpcs", "tls":
		return true
	}
	return false
}

// Scheme returns the scheme of a protocol in Go frameworks: grpc or http, with an s if
// the protocol is over TLS. Other protocols are returned in lower case.
func Scheme(protocol string) string {
	family := FamilyOf(protocol)
	if family == Other {
		return strings.ToLower(protocol)
	}
	if Secure(protocol) {
		return string(family) + "s"
	}
	return string(family)
}
