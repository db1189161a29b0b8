package kube

import (
	"strings"

	core "k8s.io/api/core/v1"
)

// The labels that localities are read from; istiod reads the same.
const (
	labelLocality = "istio-locality"
	labelRegion   = core.LabelTopologyRegion
	labelZone     = core.LabelTopologyZone
	labelSubzone  = "topology.istio.io/subzone"
)

// locality writes region/zone/subzone without the parts that are not told at its
// end, as the locality of xDS is written.
func locality(region, zone, subzone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subzone, "/")
}

// localityOf returns what a label says, in which dots may stand for slashes, as
// none of the latter may.
func localityOf(label string) string {
	if !strings.Contains(label, "/") {
		label = strings.ReplaceAll(label, ".", "/")
	}
	return strings.TrimRight(label, "/")
}
