package lease

import "slices"

// step brings a table nearer to what it should be, in the eyes of one of its
// members. Whoever is no member has lost its shards. A shard moves away from a
// living decider by that one's own hand alone, and only to who is ready for it,
// so that it has stopped before another begins.
func (t table) step(self string) {
	want := t.desired()
	for i := range t.Shards {
		s := &t.Shards[i]
		_, alive := t.Members[s.Decider]
		switch {
		case !alive:
			t.take(i, want)
		case want == nil: // nobody stays: it keeps what it has to its end
		case s.Decider != want[i].Decider && s.Warm != want[i].Decider:
			t.setWarm(i, want[i].Decider)
		case s.Decider != want[i].Decider:
			if s.Decider == self && t.ready(s.Warm, i) {
				s.Decider = s.Warm
				s.Term++
				t.setWarm(i, want[i].Warm)
			}
		default:
			t.setWarm(i, want[i].Warm)
		}
	}
	t.forget()
}

// forget drops what members are ready for that is not theirs any more.
func (t table) forget() {
	for name, m := range t.Members {
		for i := range m.Ready {
			if i < 0 || i >= len(t.Shards) || !t.Shards[i].has(name) {
				delete(m.Ready, i)
			}
		}
	}
}

// take gives a shard that nobody decides to who keeps it warm, or else to whom
// it should belong.
func (t table) take(i int, want []shard) {
	s := &t.Shards[i]
	before := s.Decider
	switch warm, there := t.Members[s.Warm]; {
	case there && !warm.Leaving && !warm.Unfit:
		s.Decider = s.Warm
	case want != nil:
		s.Decider = want[i].Decider
	default:
		s.Decider = ""
	}
	if s.Decider != before {
		s.Term++
	}
	switch {
	case want == nil || s.Decider == want[i].Warm:
		s.Warm = ""
	default:
		t.setWarm(i, want[i].Warm)
	}
}

// setWarm gives the warm part of a shard to a member, who has to get ready for
// it unless it was before.
func (t table) setWarm(i int, name string) {
	s := &t.Shards[i]
	if s.Warm == name || s.Decider == name {
		return
	}
	s.Warm = name
	delete(t.Members[name].Ready, i)
}

// desired returns who should have which shard: each member that stays and is
// fit as many as any other, and as few changes as that takes. It returns nil
// where nobody stays.
func (t table) desired() []shard {
	names := t.fit()
	if len(names) == 0 {
		return nil
	}
	d := &division{table: t, names: names, want: make([]shard, len(t.Shards))}
	d.deciders()
	if len(names) == 1 {
		d.names = t.staying() // better one that is not fit than none
	}
	if len(d.names) > 1 {
		d.warms()
	}
	return d.want
}

// A division is a table that is being divided.
type division struct {
	table table
	names []string
	want  []shard
}

// deciders gives each member its quota, first of what it has.
func (d *division) deciders() {
	quota := d.quotas()
	for i, s := range d.table.Shards {
		if quota[s.Decider] > 0 {
			d.want[i].Decider = s.Decider
			quota[s.Decider]--
		}
	}
	for i, s := range d.table.Shards {
		if d.want[i].Decider != "" {
			continue
		}
		next := s.Warm
		if quota[next] <= 0 {
			next = slices.MaxFunc(d.names, func(a, b string) int { return quota[a] - quota[b] })
		}
		d.want[i].Decider = next
		quota[next]--
	}
}

// quotas returns how many shards each member is to decide. Where they cannot
// be divided evenly, who has more keeps more.
func (d *division) quotas() map[string]int {
	has := make(map[string]int)
	for _, s := range d.table.Shards {
		has[s.Decider]++
	}
	order := slices.Clone(d.names)
	slices.SortStableFunc(order, func(a, b string) int { return has[b] - has[a] })
	quota := make(map[string]int, len(order))
	for i, name := range order {
		quota[name] = len(d.want) / len(order)
		if i < len(d.want)%len(order) {
			quota[name]++
		}
	}
	return quota
}

// warms gives each shard a member that keeps it warm: who does now, or who
// decided it, or who has the fewest. Then who has too many gives to others.
func (d *division) warms() {
	has := make(map[string]int)
	for i, s := range d.table.Shards {
		suits := func(name string) bool { return slices.Contains(d.names, name) && name != d.want[i].Decider }
		switch {
		case suits(s.Warm):
			d.want[i].Warm = s.Warm
		case suits(s.Decider):
			d.want[i].Warm = s.Decider
		default:
			d.want[i].Warm = d.fewest(has, d.want[i].Decider)
		}
		has[d.want[i].Warm]++
	}
	for d.even(has) {
	}
}

// even moves one warm shard from a member to one that has at least two fewer,
// and reports whether there was such a move.
func (d *division) even(has map[string]int) bool {
	for i := range d.want {
		s := &d.want[i]
		if to := d.fewest(has, s.Decider); has[s.Warm]-has[to] > 1 {
			has[s.Warm]--
			has[to]++
			s.Warm = to
			return true
		}
	}
	return false
}

// fewest returns the member with the fewest, but for one.
func (d *division) fewest(has map[string]int, but string) string {
	others := slices.DeleteFunc(slices.Clone(d.names), func(n string) bool { return n == but })
	return slices.MinFunc(others, func(a, b string) int { return has[a] - has[b] })
}
