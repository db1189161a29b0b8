package bridge_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The module bench measures the cost of a change and of an endpoint.

const nServices = 10_000

// running returns a table of services, and a loop in real time that wrote them.
func running(b *testing.B, services []*registry.Service) (*registry.Table, *bridge.Loop) {
	b.Helper()
	table := registry.NewTable()
	table.Replace(slices.Values(services))
	loop, err := bridge.New(memory.New(memory.Options{Owner: "me"}), []bridge.Bridge{{Name: "b", Table: table, Project: perService}},
		bridge.Options{Owner: "me", Workers: 64, Debounce: time.Millisecond, Refresh: 24 * time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	background(b, loop.Run)
	idle(b, loop)
	return table, loop
}

func idle(b *testing.B, loop *bridge.Loop) {
	b.Helper()
	if _, err := loop.AwaitIdle(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLoop_Push is a full push of 100,000 endpoints in which nothing changed, through
// table and loop.
func BenchmarkLoop_Push(b *testing.B) {
	same := fleet(nServices, 10)
	table, loop := running(b, same)
	b.ReportAllocs()
	for b.Loop() {
		table.Replace(slices.Values(same))
		idle(b, loop)
	}
}

// BenchmarkLoop_SharedGroup is a change of one service where 10,000 claim in one group,
// until status shows it.
func BenchmarkLoop_SharedGroup(b *testing.B) {
	all := fleet(nServices, 1)
	for i := range all {
		all[i].Application = "app"
	}
	table, loop := running(b, all)
	for n := 0; b.Loop(); n++ {
		s := service("s0", fmt.Sprintf("10.0.0.1:80*%d", n%7+1))
		s.Application = "app"
		table.Put(s)
		idle(b, loop)
	}
}
