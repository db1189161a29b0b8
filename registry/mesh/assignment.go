package mesh

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Assignment is the endpoints of a cluster. It is never changed; services share its
// endpoints.
type Assignment struct {
	Endpoints []registry.Endpoint // of all priorities, sorted, one per address
	Skipped   []SkippedEndpoints  // by reason
	MutualTLS int                 // how many of Endpoints accept mutual TLS
}

// SkippedEndpoints is a number of endpoints that were left out for one reason.
type SkippedEndpoints struct {
	Reason  string
	Count   int
	Example string // the address of one of them, or its text
}

// String returns what status shows.
func (s SkippedEndpoints) String() string {
	text := strconv.Itoa(s.Count) + " endpoints"
	if s.Count == 1 {
		text = "1 endpoint"
	}
	if s.Example != "" {
		text += " (such as " + s.Example + ")"
	}
	return text + " left out: " + s.Reason
}

func (a *Assignment) skip(reason, example string) {
	for i := range a.Skipped {
		if a.Skipped[i].Reason == reason {
			a.Skipped[i].Count++
			a.Skipped[i].Example = min(a.Skipped[i].Example, example)
			return
		}
	}
	a.Skipped = append(a.Skipped, SkippedEndpoints{Reason: reason, Count: 1, Example: strings.Clone(example)})
}

// normalize sorts the endpoints and keeps one of each address: one that is offered,
// of the first locality. The order of the input does not matter.
func (a *Assignment) normalize() {
	slices.SortFunc(a.Endpoints, func(x, y registry.Endpoint) int {
		return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.Port, y.Port), offeredFirst(x)-offeredFirst(y), x.Compare(y),
			cmp.Compare(x.Zone, y.Zone), cmp.Compare(y.Weight, x.Weight), cmp.Compare(len(x.Attributes), len(y.Attributes)))
	})
	a.Endpoints = slices.Clip(slices.CompactFunc(a.Endpoints, func(x, y registry.Endpoint) bool {
		return x.Host == y.Host && x.Port == y.Port
	}))
	for i := range a.Endpoints {
		if a.Endpoints[i].Attributes[AttributeTLS] != "" {
			a.MutualTLS++
		}
	}
	slices.SortFunc(a.Skipped, func(x, y SkippedEndpoints) int { return cmp.Compare(x.Reason, y.Reason) })
}

func offeredFirst(e registry.Endpoint) int {
	if e.Health.Offered() {
		return 0
	}
	return 1
}
