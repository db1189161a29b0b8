package convert

import "strings"

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
