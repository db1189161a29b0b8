package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

func group(name string) registry.Group { return registry.Group{Kind: "dubbo-interface", Name: name} }

func from(bridge int, service string) plan.Origin {
	return plan.Origin{Bridge: bridge, Service: registry.Name(service)}
}

// parse returns entries of a group from a text such as "1=x 2=y".
func parse(g registry.Group, text string) (all []registry.Entry) {
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		all = append(all, registry.Entry{Group: g, Key: key, Value: value})
	}
	return all
}

// parseStored returns stored entries of a group, from a text such as
// "1=x@me 2=y@other 3=z@me! 4=z@other-", of which an earlier session wrote the third, and
// the owner of the fourth is leaving.
func parseStored(g registry.Group, text string) (all []registry.Stored) {
	for word := range strings.FieldsSeq(text) {
		word, isDead := strings.CutSuffix(word, "!")
		word, isLeaving := strings.CutSuffix(word, "-")
		word, owner, _ := strings.Cut(word, "@")
		all = append(all, registry.Stored{Entry: parse(g, word)[0], Owner: owner, Version: 7, Live: !isDead, Leaving: isLeaving})
	}
	return all
}

// claim makes services claim entries of a group, by texts such as "0/s 1=x 2=y".
func claim(p *plan.Planner, g registry.Group, how plan.Evidence, text string) {
	of, entries, _ := strings.Cut(text, " ")
	bridge, service, _ := strings.Cut(of, "/")
	p.Claim(from(int(bridge[0]-'0'), service), how, parse(g, entries))
}

func origin(o plan.Origin) string { return fmt.Sprintf("%d/%s", o.Bridge, o.Service) }

// written describes a change: writes as +key=value, or ~key=value<old if they replace
// something, and deletions.
func written(c registry.Change) string {
	var words []string
	for _, w := range c.Put {
		text := "+" + w.New.Key + "=" + w.New.Value
		if w.Old != nil && w.Old.Leaving {
			text += "<@" + w.Old.Owner
		} else if w.Old != nil {
			text = "~" + text[1:] + "<" + w.Old.Value
			if !w.Old.Live {
				text += "!"
			}
		}
		words = append(words, text)
	}
	for _, h := range c.Delete {
		words = append(words, "-"+h.Key+"="+h.Value)
	}
	return strings.Join(words, " ")
}

// refused describes conflicts: whose claim to a key, and whose entry has it.
func refused(conflicts []plan.Conflict) string {
	var all []string
	for _, c := range conflicts {
		text := fmt.Sprintf("%s %s: owner %q", origin(c.Origin), c.Key, c.Owner)
		if c.RivalClaim {
			text = fmt.Sprintf("%s %s: %s", origin(c.Origin), c.Key, origin(c.Rival))
		}
		if c.OtherKey != "" {
			text += " at " + c.OtherKey
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// rowTexts describes rows: the claimed keys, with a mark if they are stored.
func rowTexts(p *plan.Planner, g registry.Group) string {
	var all []string
	for r := range p.Rows(g) {
		all = append(all, r.Key+map[bool]string{true: "!"}[r.Stored])
	}
	return strings.Join(all, " ")
}

// TestPlanner_Change: services claim in one group. A value of guess yields to the entry of
// another owner at the same address.
func TestPlanner_Change(t *testing.T) {
	rows := map[string]string{ // of some: the claimed keys, marked if they are stored by us or by the winner
		"an entry is missing":                   "1 2",
		"all is as it should be":                "1!",
		"a guess that is not written":           "tri://1! tri://2",
		"a guess next to one of ours":           "dubbo://1! tri://1",
		"a written guess to which others yield": "tri://1!",
	}
	shared, exclusive := group("g"), registry.Group{Kind: "service-entry", Name: "host", Exclusive: true}
	for name, tt := range map[string]struct {
		group     registry.Group
		claims    []string
		stored    string
		change    string // that is due
		want      string // the whole
		conflicts string
	}{
		"an entry is missing":         {shared, []string{"0/s 2=x 1=x"}, "", "+1=x +2=x", "1=x 2=x", ""},
		"all is as it should be":      {shared, []string{"0/s 1=x"}, "1=x@me 2=x@other", "", "1=x", ""},
		"another value is a write":    {shared, []string{"0/s 1=x"}, "1=old@me", "~1=x<old", "1=x", ""},
		"an earlier session wrote it": {shared, []string{"0/s 1=x"}, "1=x@me!", "~1=x<x!", "1=x", ""},
		"ours goes, not others'":      {shared, nil, "1=x@me 2=x@other 3=x@", "-1=x", "", ""},

		"another owner has the key":             {shared, []string{"0/s 1=x"}, "1=x@other", "", "", `0/s 1: owner "other"`},
		"an entry without owner joined our key": {shared, []string{"0/s 1=x"}, "1=x@me 1=y@", "-1=x", "", `0/s 1: owner ""`},
		"an owner before ours joined":           {shared, []string{"0/s 1=x"}, "1=x@me 1=y@before", "-1=x", "", `0/s 1: owner "before"`},
		"an owner after ours joined":            {shared, []string{"0/s 1=x"}, "1=x@me 1=y@other", "", "1=x", ""},
		"another owner leaves the key":          {shared, []string{"0/s 1=x"}, "1=y@before-", "+1=x<@before", "1=x", ""},
		"one leaves the key, another stays": {
			shared, []string{"0/s 1=x"}, "1=x@a- 1=x@b", "", "", `0/s 1: owner "b"`,
		},
		"ours replaces what leaves, once":     {shared, []string{"0/s 1=x"}, "1=x@before- 1=x@me", "", "1=x", ""},
		"ours next to another is not a claim": {shared, nil, "1=x@me 1=y@other", "-1=x", "", ""},
		"two of ours under one key":           {shared, []string{"0/s 1=x"}, "1=old@me 1=x@me", "-1=old", "1=x", ""},
		"two of ours, one is dead":            {shared, []string{"0/s 1=x"}, "1=a@me 1=x@me!", "~1=x<x! -1=a", "1=x", ""},
		"another owner has what two claim": {
			shared, []string{"0/s1 1=x 1=y", "0/s2 1=x"}, "1=x@other", "", "", `0/s1 1: owner "other", 0/s2 1: owner "other"`,
		},

		"services share an endpoint":       {shared, []string{"0/s2 1=y", "0/s1 1=x"}, "", "+1=x", "1=x", ""},
		"the first bridge has a key":       {shared, []string{"1/s1 1=y", "0/s2 1=x"}, "", "+1=x", "1=x", "1/s1 1: 0/s2"},
		"the same entry is not a conflict": {shared, []string{"0/s1 1=x", "0/s2 1=x 2=x"}, "", "+1=x +2=x", "1=x 2=x", ""},
		"one service claims a key twice":   {shared, []string{"0/s 1=y 1=x 1=x"}, "", "+1=x", "1=x", "0/s 1: 0/s"},
		"one head of those who share":      {shared, []string{"0/s1 =s1", "0/s2 =s2 2=x"}, "", "+=s1 +2=x", "=s1 2=x", ""},
		"an exclusive group is one's":      {exclusive, []string{"0/s2 2=x", "0/s1 1=x"}, "", "+1=x", "1=x", "0/s2 2: 0/s1"},
		"an empty service yields":          {exclusive, []string{"0/s1 =s1", "0/s2 =s2 1=x"}, "", "+=s2 +1=x", "=s2 1=x", "0/s1 : 0/s2"},
		"the first has it if none has any": {exclusive, []string{"0/s2 =s2", "0/s1 =s1"}, "", "+=s1", "=s1", "0/s2 : 0/s1"},

		"a guess that is not written": {
			shared,
			[]string{"0/s tri://1=guess tri://2=guess"},
			"dubbo://1=x@other", "+tri://2=guess", "tri://2=guess",
			`0/s tri://1: owner "other" at dubbo://1`,
		},
		"a guess that is written": {
			shared, []string{"0/s tri://1=guess"}, "dubbo://1=x@a tri://1=guess@me", "-tri://1=guess", "", `0/s tri://1: owner "a" at dubbo://1`,
		},
		"a written guess to which others yield": {
			shared, []string{"0/s tri://1=guess"}, "dubbo://1=x@other tri://1=guess@me", "", "tri://1=guess", "",
		},
		"a guess next to one of ours": {
			shared, []string{"0/s tri://1=guess", "1/s dubbo://1=x"}, "dubbo://1=x@me", "+tri://1=guess", "dubbo://1=x tri://1=guess", "",
		},
		"a guess next to a leaving entry": {
			shared, []string{"0/s tri://1=guess"}, "dubbo://1=x@other-", "+tri://1=guess", "tri://1=guess", "",
		},
		"a protocol that is not a guess": {
			shared, []string{"0/s tri://1=tri-known"}, "dubbo://1=x@other", "+tri://1=tri-known", "tri://1=tri-known", "",
		},
		"a guess that another bridge knows": {
			shared,
			[]string{"0/s tri://1=guess", "1/s tri://1=tri-known"},
			"dubbo://1=x@other",
			"+tri://1=guess", "tri://1=guess", "1/s tri://1: 0/s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.New("me")
			p.Yields = func(_ plan.Origin, e registry.Entry) bool { return e.Value == "guess" }
			for _, text := range tt.claims {
				claim(p, tt.group, plan.Withdrawn, text)
			}
			p.Observe(tt.group, parseStored(tt.group, tt.stored))
			c, conflicts := p.Change(tt.group)
			if got := written(c); got != tt.change || c.Group != tt.group || !slices.Equal(c.Want, parse(tt.group, tt.want)) {
				t.Errorf("Change() = %s of %s: %v, want %s: %s", got, c.Group, c.Want, tt.change, tt.want)
			}
			if want, there := rows[name]; there && rowTexts(p, tt.group) != want {
				t.Errorf("Rows() = %s, want %s", rowTexts(p, tt.group), want)
			}
			elsewhere := slices.ContainsFunc(conflicts, func(c plan.Conflict) bool { return c.Group != tt.group })
			if got := refused(conflicts); got != tt.conflicts || elsewhere {
				t.Errorf("conflicts = %s, want %s", got, tt.conflicts)
			}
		})
	}
}

func TestPlanner_SessionLost(t *testing.T) {
	p, g := plan.New("me"), group("g")
	claim(p, g, plan.Withdrawn, "0/s 1=x")
	p.Observe(g, parseStored(g, "1=x@me"))
	p.Observe(group("h"), parseStored(group("h"), "1=x@other"))
	if got := p.SessionLost(); !slices.Equal(got, []registry.Group{g}) {
		t.Errorf("SessionLost() = %v, want our group", got)
	}
	for _, want := range []string{"~1=x<x!", ""} { // once
		c, _ := p.Change(g)
		if p.Applied(c); written(c) != want {
			t.Errorf("Change() = %s, want %s", written(c), want)
		}
	}
}

// orphans returns the unclaimed rows of a group.
func orphans(p *plan.Planner, id registry.Group) (all []plan.Row) {
	for r := range p.Rows(id) {
		if !r.Claimed {
			all = append(all, r)
		}
	}
	return all
}

func TestPlanner_Orphans(t *testing.T) {
	const written = "written"
	for name, tt := range map[string]struct {
		steps []string // claims; those found missing begin with a question mark
		want  string
	}{
		"lost by two, once found missing": {
			[]string{"0/r 1=x 2=x 3=x", "0/s 1=x 2=x 3=x", "?0/r", "0/s"}, // the weakest evidence counts, in any order
			"1 0/s missing, 2 0/s missing, 3 0/s missing",
		},
		"never claimed":                {nil, "1 x, 2 x, 3 x"},
		"taken back, or found missing": {[]string{"0/s 1=x 2=x", "0/s 2=x", "?0/s"}, "1 0/s, 2 0/s missing, 3 x"},
		"claimed again by another":     {[]string{"0/s 1=x 2=x 3=x", "0/s", "1/s 1=x 2=x"}, "3 0/s"},
		"taken back during the write":  {[]string{"0/s 1=x", written}, "1 0/s"},
	} {
		t.Run(name, func(t *testing.T) {
			p, g := plan.New("me"), group("g")
			p.Observe(g, parseStored(g, "1=x@me 2=x@me 3=x@me 4=x@other"))
			for _, step := range tt.steps {
				switch text, missing := strings.CutPrefix(step, "?"); {
				case step == written:
					p.Observe(g, nil)
					change, _ := p.Change(g)
					claim(p, g, plan.Withdrawn, "0/s")
					p.Applied(change)
				case missing:
					claim(p, g, plan.Missing, text)
				default:
					claim(p, g, plan.Withdrawn, text)
				}
			}
			var got []string
			for _, o := range orphans(p, g) {
				text := o.Key + " " + o.Value
				if !o.Origin.IsZero() {
					text = o.Key + " " + origin(o.Origin) + o.Value
				}
				if !o.Origin.IsZero() && o.Evidence == plan.Missing {
					text += " missing"
				}
				got = append(got, text)
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("Orphans() = %s, want %s", strings.Join(got, ", "), tt.want)
			}
		})
	}
}

// TestPlanner_Counts: the planner counts claims and groups as they come and go.
func TestPlanner_Counts(t *testing.T) {
	p, s, g, h := plan.New("me"), from(1, "s"), group("g"), group("h")
	expect := func(ok bool, format string, args ...any) {
		t.Helper()
		if !ok {
			t.Errorf(format, args...)
		}
	}
	touched := p.Claim(s, plan.Withdrawn, slices.Concat(parse(h, "1=x"), parse(g, "1=x 2=x")))
	expect(slices.Equal(touched, []registry.Group{g, h}), "Claim() = %v, want both groups", touched)
	again := p.Claim(s, plan.Missing, slices.Concat(parse(g, "2=x 1=x"), parse(h, "1=x")))
	expect(again == nil, "Claim() of the same = %v, want none", again)
	counts := []int{p.BridgeEntries(1), p.EntriesOf(s), p.BridgeEntries(0)}
	expect(slices.Equal(counts, []int{3, 3, 0}), "entries = %v, want 3, 3, 0", counts)
	expect(slices.Equal(p.GroupsOf(s), touched), "GroupsOf() = %v, want %v", p.GroupsOf(s), touched)
	winner := p.Winner(g, "2")
	expect(winner == s, "Winner() = %v, want %v", winner, s)
	expect(p.Observe(g, parseStored(g, "1=x@me 9=x@other")), "Observe() of a new own entry = false, want true")
	expect(!p.Observe(g, parseStored(g, "1=x@me")), "Observe() without that of another = true, want false")
	expect(p.Counts() == plan.Counts{Owned: 1}, "Counts() = %+v, want one of ours", p.Counts())
	expect(!p.Drop(g) && p.Drop(group("another")), "Drop() = true of a claimed group, or false of an unknown one")
	p.Observe(group("i"), parseStored(group("i"), "1=x@other"))
	expect(p.Counts().Foreign == 1, "Counts() = %+v, want one of another", p.Counts())
	expect(p.Drop(group("i")) && p.Counts().Foreign == 0, "Counts() = %+v after Drop(), want none of another", p.Counts())
	p.Claim(s, plan.Withdrawn, nil)
	p.Observe(g, nil)
	expect(p.Drop(g) && p.Drop(h) && len(slices.Collect(p.Groups())) == 0, "Groups() = %v after Drop(), want none", slices.Collect(p.Groups()))
	winner = p.Winner(g, "2")
	expect(winner.IsZero() && p.BridgeEntries(1) == 0, "Winner() = %v, BridgeEntries() = %d once it is gone, want none", winner, p.BridgeEntries(1))
	c, _ := p.Change(g)
	expect(c.Empty() && len(orphans(p, g)) == 0, "Change() = %+v of no group, want none", c)
}

// TestPlanner_InputsUnchanged shows that the planner does not change its arguments.
func TestPlanner_InputsUnchanged(t *testing.T) {
	entries, list := parse(group("g"), "2=x 1=x"), parseStored(group("g"), "2=x@me 1=x@me")
	before, listBefore := slices.Clone(entries), slices.Clone(list)
	p := plan.New("me")
	p.Claim(from(0, "s"), plan.Withdrawn, entries)
	p.Observe(group("g"), list)
	p.SessionLost()
	if !slices.Equal(entries, before) || !slices.Equal(list, listBefore) {
		t.Error("Claim(), Observe() or SessionLost() changed its arguments")
	}
}

// TestPlanner_SelfDeregistered: providers that registered themselves deregister.
func TestPlanner_SelfDeregistered(t *testing.T) {
	for name, tt := range map[string]struct{ claimed, before, after, want string }{
		"its entry is gone":                 {"tri://1=x", "tri://1=y@", "", "1"},
		"it is claimed by another protocol": {"tri://1=x", "dubbo://1=y@", "", "1"},
		"it is there by another protocol":   {"tri://1=x", "tri://1=y@", "dubbo://1=y@", ""},
		"it stays":                          {"tri://1=x", "tri://1=y@", "tri://1=z@", ""},
		"it is unclaimed":                   {"tri://2=x", "tri://1=y@", "", ""},
		"another owner's":                   {"tri://1=x", "tri://1=y@other", "", ""},
		"ours took its place":               {"tri://1=x", "tri://1=y@", "tri://1=x@me", ""},
		"a head is not a provider":          {"=x", "=y@", "", ""},
		"without a protocol":                {"1=x 2=x", "1=y@ 2=y@", "2=y@", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			p, g := plan.New("me"), group("g")
			claim(p, g, plan.Withdrawn, "0/s "+tt.claimed)
			p.Observe(g, parseStored(g, tt.before))
			if got := strings.Join(p.SelfDeregistered(g, parseStored(g, tt.after)), " "); got != tt.want {
				t.Errorf("Left() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPlanner_Drained(t *testing.T) {
	p, g := plan.New("me"), group("g")
	p.Drained = func(at registry.Group, key string) bool { return at == g && plan.Place(key) == "1" }
	claim(p, g, plan.Withdrawn, "0/s tri://1=x tri://2=x")
	c, conflicts := p.Change(g)
	if got := written(c); got != "+tri://2=x" || len(conflicts) != 1 || !conflicts[0].Drained || conflicts[0].Key != "tri://1" {
		t.Errorf("Change() = %s, %+v, want only the other key", got, conflicts)
	}
	p.Observe(g, parseStored(g, "tri://1=old@me"))
	if c, conflicts := p.Change(g); written(c) != "~tri://1=x<old +tri://2=x" || len(conflicts) != 0 {
		t.Errorf("Change() of what we hold = %s, %+v, want a write", written(c), conflicts)
	}
}
