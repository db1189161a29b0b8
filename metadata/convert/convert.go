// Package convert says what one format's words mean in another's: weights,
// protocols and localities. It is pure.
package convert

import (
	"math"
	"strings"
)

// Normal is the share of the calls that an endpoint has when nobody said
// anything: weights are compared in hundredths of it. A registry.Endpoint of
// any registry has its weight in this unit; one of a mesh has istio's, which
// FromMesh turns into it.
const Normal = 100

// A Scale is how a format writes weights. The zero Scale is of no use.
type Scale struct {
	Normal   float64 // the weight of a normal share
	Min, Max float64 // what may be written
	Whole    bool    // without fractions
}

// Nacos is the scale of Nacos's own weights. All scales are:
//
//	            normal   least      most      whole   absent   0
//	istio            1       1      2^32-1    yes     1        as absent
//	Dubbo          100       1   1,000,000    yes     100      as absent (dubbo-go writes it so)
//	Nacos          1.0    0.01      10,000    no      1.0      gets no calls
//	Kratos         100       1   1,000,000    yes     100      gets no calls
//	Kitex           10       1   1,000,000    yes     never    gets no calls
//	Hertz           10       1   1,000,000    yes     10       as absent
//
// As a registry Nacos takes no more than 10,000 of any format.
func Nacos() Scale { return Scale{Normal: 1, Min: 0.01, Max: 10_000} }

// Kratos is the scale of Kratos, in Nacos too.
func Kratos() Scale { return Scale{Normal: 100, Min: 1, Max: maxShare, Whole: true} }

// CloudWeGo is the scale of Hertz and Kitex, in Nacos too.
func CloudWeGo() Scale { return Scale{Normal: 10, Min: 1, Max: maxShare, Whole: true} }

// Of returns the weight of a share in hundredths; 0 is a share that is not
// known, and becomes the normal one.
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

// Share returns the share that a weight is, in hundredths. A weight that is
// more than nothing is at least one of them; what is no weight is 0.
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

// maxShare keeps the sum of two thousand weights within 32 bits, in which
// consumers add them up.
const maxShare = 1_000_000

// FromMesh returns the share of an istio weight, of which 1 is the normal
// one.
func FromMesh(weight uint32) uint32 { return uint32(min(uint64(weight)*Normal, maxShare)) }

// Locality joins a region and a zone as istio writes them; empty without a
// region, because a zone alone says nothing there.
func Locality(region, zone string) string {
	if region == "" || zone == "" || strings.Contains(region+zone, "/") {
		return region
	}
	return region + "/" + zone
}

// RegionZone takes a locality apart.
func RegionZone(locality string) (region, zone string) {
	region, rest, _ := strings.Cut(locality, "/")
	zone, _, _ = strings.Cut(rest, "/")
	return region, zone
}

// Family is what protocols have in common for a consumer: one that speaks one
// of a family speaks all of it.
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

// Known reports whether a text is the name of a protocol that services are
// called by.
func Known(protocol string) bool {
	switch p := strings.ToLower(protocol); p {
	case "dubbo", "thrift", "tcp", "tls", "udp", "ws", "wss", "mongo", "redis", "mysql":
		return true
	default:
		return FamilyOf(p) != Other
	}
}

// Secure reports whether a protocol is one over TLS.
func Secure(protocol string) bool {
	switch strings.ToLower(protocol) {
	case "https", "grpcs", "tls":
		return true
	}
	return false
}

// Scheme returns the scheme that Go frameworks write for a protocol: grpc or
// http, with an s where it is over TLS; other protocols are their own.
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
