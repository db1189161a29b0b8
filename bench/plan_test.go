package bench_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestPlan measures the time to work out what has to be written to a
// target of 100,000 entries.
func TestPlan(t *testing.T) {
	const services = 10_000
	owner := metadata.Fingerprint("bench", metadata.OwnerLen)
	p := plan.New(owner)
	for i := range services {
		p.Claim(plan.Origin{Service: registry.Name(host(i))}, plan.Withdrawn, entries(i, 0))
		c, _ := p.Change(groupOf(i))
		p.Applied(c)
	}
	changed := make([][]registry.Entry, services)
	for i := range changed {
		changed[i] = entries(i, 1)
	}
	next := 0
	one := measure(t, services, func() {
		for _, g := range p.Claim(plan.Origin{Service: registry.Name(host(next))}, plan.Withdrawn, changed[next]) {
			c, _ := p.Change(g)
			p.Applied(c)
		}
		next++
	})
	results.add(t, against("plan, 1 endpoint of 100,000 changed", one, 50*time.Microsecond, 1))
	all := measure(t, 3, func() {
		for g := range p.Groups() {
			_, _ = p.Change(g)
		}
	})
	results.add(t, against("plan, 1 changed, against comparing all anew", one, all, 0))
}

// measure returns the CPU that one of n calls uses, garbage collection
// included. CPU and not time, because the machine may have other things to do.
func measure(t *testing.T, n int, do func()) time.Duration {
	t.Helper()
	runtime.GC()
	before := cpu(t)
	for range n {
		do()
	}
	return (cpu(t) - before) / time.Duration(n)
}

func groupOf(i int) registry.Group {
	return registry.Group{Kind: "dubbo-interface", Namespace: "/dubbo", Name: iface(i)}
}

// entries returns the entries of a service; the first has the generation.
func entries(i, generation int) []registry.Entry {
	list := make([]registry.Entry, 0, perService)
	for n := range perService {
		key := fmt.Sprintf("tri://10.%d.%d.%d:20000", i>>8, i&255, n)
		list = append(list, registry.Entry{
			Group: groupOf(i), Key: key, Value: fmt.Sprintf("%s/%s?side=provider&weight=%d", key, iface(i), 100+generation),
		})
		generation = 0
	}
	return list
}
