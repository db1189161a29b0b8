package lease

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestStepsEnd shows by chance that members that come, go and get ready bring
// a table to where it is even and stays, whoever of them takes the next step,
// and that no shard leaves a living decider but by its own hand.
func TestStepsEnd(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		tab := newTable(1+r.IntN(20), 100)
		for range 1 + r.IntN(6) {
			comeAndGo(r, tab)
			for range r.IntN(30) {
				turn(t, r, tab)
			}
		}
		for range 400 {
			turn(t, r, tab)
		}
		ended := tab.clone()
		for range 20 {
			turn(t, r, tab)
		}
		if !slices.Equal(ended.Shards, tab.Shards) {
			t.Fatalf("seed %d does not end:\n%v\n%v", seed, ended.Shards, tab.Shards)
		}
		even(t, seed, tab)
	}
}

func comeAndGo(r *rand.Rand, tab table) {
	for i := range 6 {
		name := fmt.Sprintf("m%d", i)
		switch r.IntN(5) {
		case 0:
			delete(tab.Members, name)
		case 1:
			if m, there := tab.Members[name]; there {
				m.Leaving = true
				tab.Members[name] = m
			}
		default:
			if _, there := tab.Members[name]; !there {
				tab.Members[name] = member{Beat: 1, Ready: map[int]int64{}}
			}
		}
	}
}

// turn lets one member get ready for a shard it has, and take a step.
func turn(t *testing.T, r *rand.Rand, tab table) {
	t.Helper()
	names := slices.Sorted(maps.Keys(tab.Members))
	if len(names) == 0 {
		return
	}
	self := names[r.IntN(len(names))]
	for i, s := range tab.Shards {
		if s.has(self) && r.IntN(3) > 0 {
			tab.Members[self].Ready[i] = s.Term
		}
	}
	before := tab.clone()
	tab.step(self)
	for i, s := range tab.Shards {
		old := before.Shards[i]
		if _, alive := before.Members[old.Decider]; alive && s.Decider != old.Decider && (old.Decider != self || !before.ready(s.Decider, i)) {
			t.Fatalf("%s took shard %d from %s for %s", self, i, old.Decider, s.Decider)
		}
		if s.Decider != old.Decider && s.Term <= old.Term || s.Decider == s.Warm && s.Warm != "" {
			t.Fatalf("shard %d: %+v after %+v", i, s, old)
		}
	}
}

func even(t *testing.T, seed uint64, tab table) {
	t.Helper()
	names := tab.staying()
	if len(names) == 0 {
		return
	}
	deciders, warms := make(map[string]int), make(map[string]int)
	for i, s := range tab.Shards {
		deciders[s.Decider]++
		warms[s.Warm]++
		if !slices.Contains(names, s.Decider) || len(names) > 1 && !slices.Contains(names, s.Warm) {
			t.Fatalf("seed %d: shard %d is with %+v, there are %v", seed, i, s, names)
		}
	}
	for _, a := range names {
		for _, b := range names {
			if deciders[a]-deciders[b] > 1 || len(names) > 2 && warms[a]-warms[b] > 2 {
				t.Fatalf("seed %d: deciders %v, warm %v", seed, deciders, warms)
			}
		}
	}
}
