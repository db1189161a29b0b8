package plan_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

func group(name string) registry.Group { return registry.Group{Kind: "dubbo-interface", Name: name} }

func entry(g, key, value string) registry.Entry {
	return registry.Entry{Group: group(g), Key: key, Value: value}
}

func held(e registry.Entry, owner string) registry.Held {
	return registry.Held{Entry: e, Owner: owner, Version: 7, Live: true}
}

func puts(entries ...registry.Entry) []registry.Write {
	var out []registry.Write
	for _, e := range entries {
		out = append(out, registry.Write{New: e})
	}
	return out
}

func from(bridge int, service string) plan.Origin {
	return plan.Origin{Bridge: bridge, Service: registry.Name(service)}
}

func TestChange(t *testing.T) {
	a, b := entry("g", "1", "x"), entry("g", "2", "x")
	old, dead := held(entry("g", "1", "old"), "me"), held(a, "me")
	dead.Live = false
	type claims map[plan.Origin][]registry.Entry
	tests := map[string]struct {
		claims    claims
		held      []registry.Held
		want      registry.Change
		conflicts []plan.Conflict
	}{
		"nothing claimed and nothing held": {},
		"an entry is missing": {
			claims: claims{from(0, "s"): {b, a}},
			want:   registry.Change{Put: puts(a, b), Want: []registry.Entry{a, b}},
		},
		"everything is as it should be": {
			claims: claims{from(0, "s"): {a}},
			held:   []registry.Held{held(a, "me"), held(b, "other")},
			want:   registry.Change{Want: []registry.Entry{a}},
		},
		"a value differs: a replacement, not a deletion": {
			claims: claims{from(0, "s"): {a}},
			held:   []registry.Held{old},
			want:   registry.Change{Put: []registry.Write{{New: a, Old: &old}}, Want: []registry.Entry{a}},
		},
		"ours and claimed, but an earlier session holds it": {
			claims: claims{from(0, "s"): {a}},
			held:   []registry.Held{dead},
			want:   registry.Change{Put: []registry.Write{{New: a, Old: &dead}}, Want: []registry.Entry{a}},
		},
		"only what is ours and not claimed goes": {
			held: []registry.Held{held(a, "me"), held(b, "other"), held(entry("g", "3", "x"), "")},
			want: registry.Change{Delete: []registry.Held{held(a, "me")}},
		},
		"another owner has the key": {
			claims:    claims{from(0, "s"): {a}},
			held:      []registry.Held{held(a, "other")},
			conflicts: []plan.Conflict{{Group: group("g"), Key: "1", Origin: from(0, "s"), Owner: "other"}},
		},
		"what nobody has marked joined a key that we hold too: ours goes": {
			claims:    claims{from(0, "s"): {a}},
			held:      []registry.Held{held(a, "me"), held(entry("g", "1", "y"), "")},
			want:      registry.Change{Delete: []registry.Held{held(a, "me")}},
			conflicts: []plan.Conflict{{Group: group("g"), Key: "1", Origin: from(0, "s")}},
		},
		"an owner before ours joined a key that we hold too: ours goes": {
			claims:    claims{from(0, "s"): {a}},
			held:      []registry.Held{held(a, "me"), held(entry("g", "1", "y"), "before")},
			want:      registry.Change{Delete: []registry.Held{held(a, "me")}},
			conflicts: []plan.Conflict{{Group: group("g"), Key: "1", Origin: from(0, "s"), Owner: "before"}},
		},
		"an owner after ours joined a key that we hold too: it has to yield": {
			claims: claims{from(0, "s"): {a}},
			held:   []registry.Held{held(a, "me"), held(entry("g", "1", "y"), "other")},
			want:   registry.Change{Want: []registry.Entry{a}},
		},
		"ours beside another owner's is not claimed: it goes": {
			held: []registry.Held{held(a, "me"), held(entry("g", "1", "y"), "other")},
			want: registry.Change{Delete: []registry.Held{held(a, "me")}},
		},
		"two of ours under one key: one stays": {
			claims: claims{from(0, "s"): {a}},
			held:   []registry.Held{old, held(a, "me")},
			want:   registry.Change{Delete: []registry.Held{old}, Want: []registry.Entry{a}},
		},
		"two of ours under one key, what is wanted by an earlier session: it is written anew, and the other goes": {
			claims: claims{from(0, "s"): {a}},
			held:   []registry.Held{held(entry("g", "1", "a"), "me"), dead},
			want: registry.Change{
				Put: []registry.Write{{New: a, Old: &dead}}, Delete: []registry.Held{held(entry("g", "1", "a"), "me")}, Want: []registry.Entry{a},
			},
		},
		"another owner has a key that two services claim, one of them twice: each is told once": {
			claims: claims{from(0, "s1"): {a, entry("g", "1", "y")}, from(0, "s2"): {a}},
			held:   []registry.Held{held(a, "other")},
			conflicts: []plan.Conflict{
				{Group: group("g"), Key: "1", Origin: from(0, "s1"), Owner: "other"},
				{Group: group("g"), Key: "1", Origin: from(0, "s2"), Owner: "other"},
			},
		},
		"two services claim one key: the first by name has it": {
			claims:    claims{from(0, "s1"): {a}, from(0, "s2"): {entry("g", "1", "y")}},
			want:      registry.Change{Put: puts(a), Want: []registry.Entry{a}},
			conflicts: []plan.Conflict{{Group: group("g"), Key: "1", Origin: from(0, "s2"), Rival: from(0, "s1"), RivalClaim: true}},
		},
		"two bridges claim one key: the first in the configuration has it": {
			claims:    claims{from(1, "s1"): {entry("g", "1", "y")}, from(0, "s2"): {a}},
			want:      registry.Change{Put: puts(a), Want: []registry.Entry{a}},
			conflicts: []plan.Conflict{{Group: group("g"), Key: "1", Origin: from(1, "s1"), Rival: from(0, "s2"), RivalClaim: true}},
		},
		"two services claim the very same entry: no conflict": {
			claims: claims{from(0, "s1"): {a}, from(0, "s2"): {a, b}},
			want:   registry.Change{Put: puts(a, b), Want: []registry.Entry{a, b}},
		},
		"one service claims a key twice": {
			claims:    claims{from(0, "s"): {entry("g", "1", "y"), a, a}},
			want:      registry.Change{Put: puts(a), Want: []registry.Entry{a}},
			conflicts: []plan.Conflict{{Group: group("g"), Key: "1", Origin: from(0, "s"), Rival: from(0, "s"), RivalClaim: true}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan.New("me")
			for origin, entries := range tt.claims {
				p.Claim(origin, plan.Withdrawn, entries)
			}
			p.Observe(group("g"), tt.held)
			tt.want.Group = group("g")
			got, conflicts := p.Change(group("g"))
			if !equal(got, tt.want) || !slices.Equal(conflicts, tt.conflicts) {
				t.Errorf("got %+v, %+v\nwant %+v, %+v", got, conflicts, tt.want, tt.conflicts)
			}
		})
	}
}

func TestExclusive(t *testing.T) {
	host := registry.Group{Kind: "service-entry", Name: "host", Exclusive: true}
	a := registry.Entry{Group: host, Key: "1", Value: "x"}
	b := registry.Entry{Group: host, Key: "2", Value: "x"}
	p := plan.New("me")
	p.Claim(from(0, "s2"), plan.Withdrawn, []registry.Entry{b})
	p.Claim(from(0, "s1"), plan.Withdrawn, []registry.Entry{a})
	got, conflicts := p.Change(host)
	if want := (registry.Change{Group: host, Put: puts(a), Want: []registry.Entry{a}}); !equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if want := []plan.Conflict{{Group: host, Key: "2", Origin: from(0, "s2"), Rival: from(0, "s1"), RivalClaim: true}}; !slices.Equal(conflicts, want) {
		t.Errorf("the second service is not refused whole: %+v", conflicts)
	}
}

// TestAnEmptyServiceHoldsNoPlace: who claims an exclusive group without
// endpoints yields to who has some, and both orders come to the same.
func TestAnEmptyServiceHoldsNoPlace(t *testing.T) {
	host := registry.Group{Kind: "service-entry", Name: "host", Exclusive: true}
	headOf := func(of string) registry.Entry {
		return registry.Entry{Group: host, Key: registry.HeadKey, Value: of}
	}
	one := registry.Entry{Group: host, Key: "1", Value: "x"}
	p := plan.New("me")
	p.Claim(from(0, "s1"), plan.Withdrawn, []registry.Entry{headOf("s1")})
	p.Claim(from(0, "s2"), plan.Withdrawn, []registry.Entry{headOf("s2"), one})
	got, conflicts := p.Change(host)
	if want := []registry.Entry{headOf("s2"), one}; !slices.Equal(got.Want, want) {
		t.Errorf("wants %v", got.Want)
	}
	if want := []plan.Conflict{{Group: host, Origin: from(0, "s1"), Rival: from(0, "s2"), RivalClaim: true}}; !slices.Equal(conflicts, want) {
		t.Errorf("conflicts %+v", conflicts)
	}
	p.Claim(from(0, "s2"), plan.Withdrawn, []registry.Entry{headOf("s2")})
	if got, _ := p.Change(host); !slices.Equal(got.Want, []registry.Entry{headOf("s1")}) {
		t.Errorf("where none has any, wants %v", got.Want)
	}
}

// TestHeadsOfOneGroup: services that share a group have one head, the first's,
// and none of them is in conflict for it.
func TestHeadsOfOneGroup(t *testing.T) {
	g := registry.Group{Kind: "service-entry", Name: "host"}
	in := func(key, value string) registry.Entry { return registry.Entry{Group: g, Key: key, Value: value} }
	p := plan.New("me")
	p.Claim(from(0, "s1"), plan.Withdrawn, []registry.Entry{in(registry.HeadKey, "s1")})
	p.Claim(from(0, "s2"), plan.Withdrawn, []registry.Entry{in(registry.HeadKey, "s2"), in("2", "x")})
	got, conflicts := p.Change(g)
	if want := []registry.Entry{in(registry.HeadKey, "s1"), in("2", "x")}; !slices.Equal(got.Want, want) || len(conflicts) != 0 {
		t.Errorf("wants %v, conflicts %+v", got.Want, conflicts)
	}
}

// TestAGuessYields: what is a guess gives way to another's entry of the same
// address, as a conflict, unless somebody of ours is told it.
func TestAGuessYields(t *testing.T) {
	guess, told, address := entry("g", "tri://1", "guess"), entry("g", "tri://1", "told"), entry("g", "tri://2", "guess")
	theirs := entry("g", "dubbo://1", "x")
	tests := map[string]struct {
		claims map[plan.Origin][]registry.Entry
		held   []registry.Held
		wants  []registry.Entry
		delete int
		owner  string // in the way; empty: nobody is
	}{
		"one that is not written yet": {
			claims: map[plan.Origin][]registry.Entry{from(0, "s"): {guess, address}},
			held:   []registry.Held{held(theirs, "other")}, wants: []registry.Entry{address}, owner: "other",
		},
		"one that stands": {
			claims: map[plan.Origin][]registry.Entry{from(0, "s"): {guess}},
			held:   []registry.Held{held(theirs, "a"), held(guess, "me")}, delete: 1, owner: "a",
		},
		"one that stands keeps its place where the other yields too": {
			claims: map[plan.Origin][]registry.Entry{from(0, "s"): {guess}},
			held:   []registry.Held{held(theirs, "other"), held(guess, "me")}, wants: []registry.Entry{guess},
		},
		"another of our own is none of others": {
			claims: map[plan.Origin][]registry.Entry{from(0, "s"): {guess}, from(1, "s"): {theirs}},
			held:   []registry.Held{held(theirs, "me")}, wants: []registry.Entry{theirs, guess},
		},
		"one that is told stays": {
			claims: map[plan.Origin][]registry.Entry{from(0, "s"): {told}},
			held:   []registry.Held{held(theirs, "other")}, wants: []registry.Entry{told},
		},
		"one that a second bridge is told stays": {
			claims: map[plan.Origin][]registry.Entry{from(0, "s"): {guess}, from(1, "s"): {told}},
			held:   []registry.Held{held(theirs, "other")}, wants: []registry.Entry{guess},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan.New("me")
			p.Yields = func(_ plan.Origin, e registry.Entry) bool { return e.Value == "guess" }
			for origin, entries := range tt.claims {
				p.Claim(origin, plan.Withdrawn, entries)
			}
			p.Observe(group("g"), tt.held)
			c, conflicts := p.Change(group("g"))
			if !slices.Equal(c.Want, tt.wants) || len(c.Delete) != tt.delete {
				t.Errorf("wants %v and deletes %v", c.Want, c.Delete)
			}
			claimed, desired := make(map[string]bool), make(map[string]bool)
			for d := range p.Rows(group("g")) {
				desired[d.Key] = d.Held
			}
			for _, entries := range tt.claims {
				for _, e := range entries {
					claimed[e.Key] = tt.owner != "" && e.Key == guess.Key || slices.ContainsFunc(tt.held, func(h registry.Held) bool { return h.Key == e.Key })
				}
			}
			if !maps.Equal(desired, claimed) {
				t.Errorf("desired are %v, want %v", desired, claimed)
			}
			conflicts = slices.DeleteFunc(conflicts, func(c plan.Conflict) bool { return c.RivalClaim })
			if tt.owner == "" && len(conflicts) == 0 {
				return
			}
			if want := []plan.Conflict{{Group: group("g"), Key: "tri://1", Origin: from(0, "s"), Owner: tt.owner, OtherKey: "dubbo://1"}}; !slices.Equal(conflicts, want) {
				t.Errorf("conflicts %+v", conflicts)
			}
		})
	}
}

func TestLost(t *testing.T) {
	a, b := entry("g", "1", "x"), entry("h", "1", "x")
	p := plan.New("me")
	p.Claim(from(0, "s"), plan.Withdrawn, []registry.Entry{a})
	p.Observe(group("g"), []registry.Held{held(a, "me")})
	p.Observe(group("h"), []registry.Held{held(b, "other")})
	if got := p.SessionLost(); !slices.Equal(got, []registry.Group{group("g")}) {
		t.Errorf("touched %v", got)
	}
	c, _ := p.Change(group("g"))
	if len(c.Put) != 1 || c.Put[0].New != a || c.Put[0].Old == nil || c.Put[0].Old.Live {
		t.Errorf("not written once more: %+v", c)
	}
	p.Applied(c)
	if c, _ := p.Change(group("g")); !c.Empty() {
		t.Errorf("written twice: %+v", c)
	}
}

// orphans returns the rows of a group that nobody claims.
func orphans(p *plan.Planner, id registry.Group) (all []plan.Row) {
	for r := range p.Rows(id) {
		if !r.Claimed {
			all = append(all, r)
		}
	}
	return all
}

func TestSurplus(t *testing.T) {
	a, b, c := entry("g", "1", "x"), entry("g", "2", "x"), entry("g", "3", "x")
	all := []registry.Held{held(a, "me"), held(b, "me"), held(c, "me"), held(entry("g", "4", "x"), "other")}
	s := from(0, "s")
	tests := map[string]struct {
		act  func(*plan.Planner)
		want []plan.Row
	}{
		"lost by two, and by one of them only found missing: the weakest evidence counts, whoever lost it last": {
			act: func(p *plan.Planner) {
				for _, origin := range []plan.Origin{from(0, "r"), s} {
					p.Claim(origin, plan.Withdrawn, []registry.Entry{a, b, c})
				}
				p.Claim(from(0, "r"), plan.Missing, nil)
				p.Claim(s, plan.Withdrawn, nil)
			},
			want: []plan.Row{
				{Key: "1", Held: true, Origin: s, Evidence: plan.Missing},
				{Key: "2", Held: true, Origin: s, Evidence: plan.Missing},
				{Key: "3", Held: true, Origin: s, Evidence: plan.Missing},
			},
		},
		"never claimed": {
			act:  func(*plan.Planner) {},
			want: []plan.Row{{Key: "1", Held: true, Value: "x"}, {Key: "2", Held: true, Value: "x"}, {Key: "3", Held: true, Value: "x"}},
		},
		"taken back, found missing, never claimed": {
			act: func(p *plan.Planner) {
				p.Claim(s, plan.Withdrawn, []registry.Entry{a, b})
				p.Claim(s, plan.Withdrawn, []registry.Entry{b})
				p.Claim(s, plan.Missing, nil)
			},
			want: []plan.Row{{Key: "1", Held: true, Origin: s}, {Key: "2", Held: true, Origin: s, Evidence: plan.Missing}, {Key: "3", Held: true, Value: "x"}},
		},
		"claimed again by another": {
			act: func(p *plan.Planner) {
				p.Claim(s, plan.Withdrawn, []registry.Entry{a, b, c})
				p.Claim(s, plan.Withdrawn, nil)
				p.Claim(from(1, "s"), plan.Withdrawn, []registry.Entry{a, b})
			},
			want: []plan.Row{{Key: "3", Held: true, Origin: s}},
		},
		"taken back while the write was under way": {
			act: func(p *plan.Planner) {
				p.Observe(group("g"), nil)
				p.Claim(s, plan.Withdrawn, []registry.Entry{a})
				change, _ := p.Change(group("g"))
				p.Claim(s, plan.Withdrawn, nil)
				p.Applied(change)
			},
			want: []plan.Row{{Key: "1", Held: true, Origin: s}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan.New("me")
			p.Observe(group("g"), all)
			tt.act(p)
			if got := orphans(p, group("g")); !slices.Equal(got, tt.want) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestBooks(t *testing.T) {
	p := plan.New("me")
	s := from(1, "s")
	touched := p.Claim(s, plan.Withdrawn, []registry.Entry{entry("h", "1", "x"), entry("g", "1", "x"), entry("g", "2", "x")})
	if !slices.Equal(touched, []registry.Group{group("g"), group("h")}) {
		t.Errorf("touched %v", touched)
	}
	if again := p.Claim(s, plan.Missing, []registry.Entry{entry("g", "2", "x"), entry("g", "1", "x"), entry("h", "1", "x")}); again != nil {
		t.Errorf("the same claim touched %v", again)
	}
	if p.BridgeEntries(1) != 3 || p.EntriesOf(s) != 3 || p.BridgeEntries(0) != 0 || !slices.Equal(p.GroupsOf(s), touched) {
		t.Errorf("claimed %d, %d, in %v", p.BridgeEntries(1), p.EntriesOf(s), p.GroupsOf(s))
	}
	if origin := p.Winner(group("g"), "2"); origin != s {
		t.Errorf("winner %v", origin)
	}
	if !p.Observe(group("g"), []registry.Held{held(entry("g", "1", "x"), "me"), held(entry("g", "9", "x"), "other")}) {
		t.Error("a new entry of ours is no difference")
	}
	if p.Observe(group("g"), []registry.Held{held(entry("g", "1", "x"), "me")}) {
		t.Error("an entry of another is a difference")
	}
	if got := p.Counts(); got != (plan.Counts{Owned: 1}) {
		t.Errorf("counts %+v", got)
	}
	if p.Drop(group("g")) || !p.Drop(group("unheard of")) {
		t.Error("what is claimed or owned is not dropped")
	}
	p.Observe(group("i"), []registry.Held{held(entry("i", "1", "x"), "other")})
	if got := p.Counts(); got.Foreign != 1 || !p.Drop(group("i")) || p.Counts().Foreign != 0 {
		t.Errorf("counts %+v, and %+v after the group of another was dropped", got, p.Counts())
	}
	p.Claim(s, plan.Withdrawn, nil)
	p.Observe(group("g"), nil)
	if !p.Drop(group("g")) || !p.Drop(group("h")) || len(slices.Collect(p.Groups())) != 0 {
		t.Error("groups without anything are not dropped")
	}
	if origin := p.Winner(group("g"), "2"); !origin.IsZero() || p.BridgeEntries(1) != 0 {
		t.Error("a claim outlives its service")
	}
	if c, _ := p.Change(group("g")); !c.Empty() {
		t.Errorf("change of an unknown group: %+v", c)
	}
	if n := len(orphans(p, group("g"))); n != 0 {
		t.Errorf("%d surplus in an unknown group", n)
	}
}

func equal(a, b registry.Change) bool {
	same := func(a, b registry.Write) bool {
		return a.New == b.New && (a.Old == nil) == (b.Old == nil) && (a.Old == nil || *a.Old == *b.Old)
	}
	return a.Group == b.Group && slices.EqualFunc(a.Put, b.Put, same) &&
		slices.Equal(a.Delete, b.Delete) && slices.Equal(a.Want, b.Want)
}

// TestInputsStay shows that the planner does not write to what it is given.
func TestInputsStay(t *testing.T) {
	entries := []registry.Entry{entry("g", "2", "x"), entry("g", "1", "x")}
	list := []registry.Held{held(entry("g", "2", "x"), "me"), held(entry("g", "1", "x"), "me")}
	before, listBefore := slices.Clone(entries), slices.Clone(list)
	p := plan.New("me")
	p.Claim(from(0, "s"), plan.Withdrawn, entries)
	p.Observe(group("g"), list)
	p.SessionLost()
	if !slices.Equal(entries, before) || !slices.Equal(list, listBefore) {
		t.Error("inputs were changed")
	}
}
