package mesh

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Assignment is the endpoints of a cluster. It is immutable, because services share its
// endpoints.
type Assignment struct {
	Endpoints []registry.Endpoint // of all priorities, sorted, one per address
	Skipped   []SkippedEndpoints  // sorted by reason
	MutualTLS int                 // how many of Endpoints accept mutual TLS
}

// SkippedEndpoints counts the endpoints that were left out for one reason.
type SkippedEndpoints struct {
	Reason  string
	Count   int
	Example string // address of one of them; may be empty
}

// String returns the text in the output of status.
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

// skip counts an endpoint that is left out.
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

// normalize sorts the endpoints and keeps one per address. It prefers an offered one, and then
// the one that sorts first, whichever order the endpoints had.
func (a *Assignment) normalize() {
	slices.SortFunc(a.Endpoints, func(x, y registry.Endpoint) int {
		return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.Port, y.Port),
			offeredFirst(x)-offeredFirst(y), x.Compare(y),
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

// offeredFirst returns a sort key.
func offeredFirst(e registry.Endpoint) int {
	if e.Health.Offered() {
		return 0
	}
	return 1
}
