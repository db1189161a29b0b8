package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// selfRegistering returns the planner of a target in which providers register themselves.
func selfRegistering() *plan.Planner {
	p := plan.New("me")
	p.SelfRegistration = true
	return p
}

// TestPlanner_Contradictions: a process at one address registers entries, each as group and
// key, while others are claimed for it.
func TestPlanner_Contradictions(t *testing.T) {
	const at = "tri://10.0.0.5:20880"
	for name, tt := range map[string]struct {
		registered string // what others hold, with their owners
		claimed    string
		want       string
	}{
		"nothing is registered":              {"", "shop.Orders " + at, ""},
		"the claimed name":                   {"shop.Orders " + at, "shop.Orders " + at, ""},
		"the claimed name, of another owner": {"shop.Order " + at + "@other", "shop.Orders " + at, ""},
		"another version":                    {"shop.Orders " + at + "?2.0.0", "shop.Orders " + at + "?1.0.0", "shop.Orders " + at + "?2.0.0"},
		"no version":                         {"shop.Orders " + at, "shop.Orders " + at + "?1.0.0", "shop.Orders " + at},
		"both versions":                      {"shop.Orders " + at + "?1.0.0, shop.Orders " + at + "?2.0.0", "shop.Orders " + at + "?1.0.0", ""},
		"another interface":                  {"shop.Order " + at, "shop.Orders " + at, "shop.Order " + at},
		"the interface, and others":          {"shop.Carts " + at + ", shop.Orders " + at, "shop.Orders " + at, ""},
		"another version before interfaces":  {"shop.Carts " + at + ", shop.Orders " + at + "?2.0.0", "shop.Orders " + at, "shop.Orders " + at + "?2.0.0"},
		"the protocol does not count":        {"shop.Orders dubbo://10.0.0.5:20880", "shop.Orders " + at, ""},
		"another port is another process":    {"shop.Order tri://10.0.0.5:20881", "shop.Orders " + at, ""},
		"an address that begins so":          {"shop.Order tri://10.0.0.5:208801", "shop.Orders " + at, ""},
		"another root":                       {"/gray/shop.Order " + at, "shop.Orders " + at, ""},
		"a version in the name of the group": {
			"providers:shop.Orders:2.0.0: 10.0.0.5:20880, providers:shop.Carts:1.0.0: 10.0.0.5:20880", "providers:shop.Orders:1.0.0: 10.0.0.5:20880",
			"providers:shop.Orders:2.0.0: 10.0.0.5:20880",
		},
		"another cluster":    {"orders 10.0.0.5:8080#gray", "orders 10.0.0.5:8080", "orders 10.0.0.5:8080#gray"},
		"more than a few":    {"a " + at + ", b " + at + ", c " + at + ", d " + at, "shop.Orders " + at, "a " + at + ", b " + at + ", c " + at + " of 4"},
		"a head, and a part": {"shop.Order , shop.Carts #part", "shop.Orders ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := selfRegistering()
			byGroup := make(map[registry.Group]string)
			for text := range strings.SplitSeq(tt.registered, ", ") {
				if name, key, ok := strings.Cut(text, " "); ok {
					byGroup[place(name)] += " " + key
				}
			}
			for g, keys := range byGroup {
				p.Observe(g, parseStored(g, keys))
				p.Drop(g)
			}
			of, key, _ := strings.Cut(tt.claimed, " ")
			g := place(of)
			claim(p, g, plan.Withdrawn, "0/s "+key)
			p.Observe(g, parseStored(g, byGroup[g]))
			var got []string
			for _, c := range p.Contradictions(g) {
				if c.Origin != from(0, "s") || c.Claimed != key || c.Addresses != 1 {
					t.Errorf("Contradictions() = %+v, want one address claimed as %s", c, key)
				}
				for _, r := range c.As {
					got = append(got, r.Group.Name+" "+r.Key)
				}
				if c.Names > len(c.As) {
					got[len(got)-1] += fmt.Sprintf(" of %d", c.Names)
				}
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("Contradictions() = %s, want %s", strings.Join(got, ", "), tt.want)
			}
		})
	}
}

// place returns the group of a name, which begins with its root, if it has one.
func place(name string) registry.Group {
	g := group(name)
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		g.Namespace, g.Name = name[:i], name[i+1:]
	}
	return g
}

// TestPlanner_Contradictions_Changes: registrations and claims come and go.
func TestPlanner_Contradictions_Changes(t *testing.T) {
	p, g, other := selfRegistering(), group("shop.Orders"), group("shop.Order")
	drained := false
	p.Drained = func(registry.Group, string) bool { return drained }
	expect := func(when string, addresses int) {
		t.Helper()
		n := 0
		for _, c := range p.Contradictions(g) {
			n += c.Addresses
		}
		if n != addresses {
			t.Errorf("%s: %d addresses, want %d", when, n, addresses)
		}
	}
	p.Observe(other, parseStored(other, "tri://1 dubbo://1 tri://2 tri://3"))
	claim(p, g, plan.Withdrawn, "0/s tri://1 dubbo://1 tri://2 tri://4")
	expect("of four addresses two are claimed", 2)
	p.Observe(other, parseStored(other, "tri://1"))
	expect("one is registered no more", 1)
	drained = true
	expect("it is not written", 0)
	drained = false
	p.Observe(g, parseStored(g, "tri://1@other"))
	expect("another owner has it", 1) // under the other protocol it is ours
	p.Observe(g, parseStored(g, "tri://1"))
	expect("it registers itself as claimed too", 0)
	p.Observe(g, nil)
	expect("it took that off", 1)
	p.Forget(func(registry.Group) bool { return true })
	expect("all groups are listed", 1)
	p.Drop(other)
	p.Forget(func(id registry.Group) bool { return id == g })
	expect("the other group is gone", 0)
}

// TestPlanner_Contradictions_Bounded: there are more registrations than are remembered.
func TestPlanner_Contradictions_Bounded(t *testing.T) {
	p, g := selfRegistering(), group("shop.Orders")
	claim(p, g, plan.Withdrawn, "0/s tri://last")
	for i := range 300 {
		id := group(fmt.Sprintf("g%d", i))
		list := []registry.Stored{{Entry: registry.Entry{Group: id, Key: fmt.Sprintf("tri://%d", i)}}}
		for j := range 1000 {
			list = append(list, registry.Stored{Entry: registry.Entry{Group: id, Key: fmt.Sprintf("tri://%d-%d", i, j)}})
		}
		if i == 299 {
			list[0].Key = "tri://last"
		}
		p.Observe(id, list)
		p.Drop(id)
	}
	if got := p.Contradictions(g); len(got) != 0 {
		t.Errorf("Contradictions() = %v of a group beyond the bound, want none", got)
	}
	p.Observe(g, parseStored(g, "tri://last?2.0.0"))
	if got := p.Contradictions(g); len(got) != 1 {
		t.Errorf("Contradictions() = %v of the claimed group, want one", got)
	}
}

// TestPlanner_SelfRegistered: providers register themselves next to claimed entries.
func TestPlanner_SelfRegistered(t *testing.T) {
	p, g := selfRegistering(), group("g")
	claim(p, g, plan.Withdrawn, "0/s tri://1?1 tri://2?1")
	claim(p, g, plan.Withdrawn, "1/t tri://3")
	p.Observe(g, parseStored(g, "tri://1?1@me tri://2?1 tri://7?1 tri://8?2 tri://9?1@other"))
	got := p.SelfRegistered(g)
	if len(got) != 1 || got[0].Origin != from(0, "s") || got[0].Entries != 1 || got[0].Some[0].Key != "tri://7?1" {
		t.Errorf("SelfRegistered() = %+v, want one entry next to those of s", got)
	}
}

// TestPlanner_SelfRegistration: claims are compared with self-registered entries in every
// target that has them, in shared and in exclusive groups.
func TestPlanner_SelfRegistration(t *testing.T) {
	for name, tt := range map[string]struct {
		exclusive, selfRegistration bool
		want                        int // contradictions, and services with other entries
	}{
		"a shared group":                               {false, true, 1},
		"an exclusive group":                           {true, true, 1},
		"a target without self-registration":           {false, false, 0},
		"an exclusive group without self-registration": {true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, g, other := plan.New("me"), group("orders"), group("order")
			p.SelfRegistration, g.Exclusive, other.Exclusive = tt.selfRegistration, tt.exclusive, tt.exclusive
			p.Observe(other, parseStored(other, "10.0.0.1:80"))
			claim(p, g, plan.Withdrawn, "0/s 10.0.0.1:80")
			p.Observe(g, parseStored(g, "10.0.0.1:80@me 10.0.0.2:80"))
			if got := p.Contradictions(g); len(got) != tt.want {
				t.Errorf("Contradictions() = %+v, want %d", got, tt.want)
			}
			if got := p.SelfRegistered(g); len(got) != tt.want {
				t.Errorf("SelfRegistered() = %+v, want %d", got, tt.want)
			}
		})
	}
}
