package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// TestServing measures a push: one of many ServiceEntries changes while several
// istiods are served.
func TestServing(t *testing.T) {
	const services = 10_000
	codec, err := serviceentry.New(serviceentry.Options{
		Hosts: hosts(), Namespace: "xds-bridge", Mark: mark(),
	})
	must(t, err)
	target := mcp.NewTarget(mcp.Options{Owner: mark().Owner})
	put := func(i, version int) {
		s := &registry.Service{Name: registry.Name(iface(i)), Protocol: "tri", Interfaces: []registry.Interface{{Name: iface(i)}}}
		for n := range perService {
			s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, n+1), Port: 20000, Weight: uint32(version)})
		}
		entries, err := codec.Encode(s)
		must(t, err)
		held, err := target.Read(t.Context(), entries[0].Group)
		must(t, err)
		c := registry.Change{Group: entries[0].Group, Want: entries}
		for j, e := range entries {
			w := registry.Write{New: e}
			if len(held) > 0 {
				w.Old = &held[j]
			}
			c.Put = append(c.Put, w)
		}
		must(t, target.Write(t.Context(), c))
	}
	for i := range services {
		put(i, 1)
	}
	const rounds = 200
	before := cpu(t)
	for i := range rounds {
		put(i, 2)
	}
	each := (cpu(t) - before) / rounds
	results.add(t, row{what: fmt.Sprintf("encoding of one changed ServiceEntry of %d, CPU", services), ours: short(each), floor: "1ms", ratio: float64(each) / float64(time.Millisecond)})
}
