package plan_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

const nServices, nEndpoints = 10_000, 10

// claims renders every service of a fleet to canonical text of about 250
// bytes an endpoint; another shift moves every address.
func claims(service, shift int) []registry.Entry {
	g := registry.Group{Kind: "dubbo-interface", Namespace: "/dubbo", Name: "org.example.api.Service" + strconv.Itoa(service)}
	entries := make([]registry.Entry, nEndpoints)
	for i := range entries {
		host := fmt.Sprintf("10.%d.%d.%d", service>>8, service&255, i+shift)
		entries[i] = registry.Entry{Group: g, Key: "dubbo://" + host + ":20880", Value: "dubbo://" + host + ":20880/" + g.Name +
			"?application=app&deprecated=false&dubbo=2.0.2&dynamic=false&generic=false&interface=" + g.Name +
			"&methods=a,b,c,d&release=3.3.0&revision=1.0.0&side=provider&version=1.0.0&weight=100&xdsb=0a1b2c3d4e5f6g7h8"}
	}
	return entries
}

func origin(service int) plan.Origin {
	return plan.Origin{Service: registry.Name("svc-" + strconv.Itoa(service) + ".ns.svc.cluster.local:20880")}
}

// load claims everything and applies what that takes.
func load(all [][]registry.Entry) *plan.Planner {
	p := plan.New("me")
	for i, entries := range all {
		p.Claim(origin(i), plan.Told, entries)
	}
	for g := range p.Groups() {
		c, _ := p.Change(g)
		p.Applied(c)
	}
	return p
}

func fleet(shift int) [][]registry.Entry {
	all := make([][]registry.Entry, nServices)
	for i := range all {
		all[i] = claims(i, shift)
	}
	return all
}

// BenchmarkP12OneEndpoint is one endpoint of 100,000 that changes.
func BenchmarkP12OneEndpoint(b *testing.B) {
	all, alt := fleet(0), fleet(1)
	p := load(all)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		i := n / 2 % nServices
		entries := all[i]
		if n%2 == 0 {
			entries = alt[i]
		}
		n++
		for _, g := range p.Claim(origin(i), plan.Told, entries) {
			c, _ := p.Change(g)
			if len(c.Put) != 1 || len(c.Delete) != 1 {
				b.Fatalf("%+v", c)
			}
			p.Applied(c)
		}
	}
}

// BenchmarkP12All is the plan of 100,000 endpoints from nothing.
func BenchmarkP12All(b *testing.B) {
	all := fleet(0)
	b.ReportAllocs()
	for b.Loop() {
		load(all)
	}
}

// BenchmarkP12Nothing is a full claim of 100,000 endpoints in which nothing
// changed.
func BenchmarkP12Nothing(b *testing.B) {
	all, same := fleet(0), fleet(0)
	p := load(all)
	b.ReportAllocs()
	for b.Loop() {
		for i, entries := range same {
			if p.Claim(origin(i), plan.Told, entries) != nil {
				b.Fatal("changed")
			}
		}
	}
}
