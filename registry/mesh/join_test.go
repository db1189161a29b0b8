package mesh_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

func TestJoin_Golden(t *testing.T) {
	for _, dir := range []string{"router", "sidecar-sotw", "sidecar-region1", "kube", "mcp-eds"} {
		t.Run(dir, func(t *testing.T) {
			n := everything(t)
			v := capture(t, plain(t), dir)
			golden(t, dir, joinText(n.Join(v)))
		})
	}
	t.Run("kube with subsets and keys", func(t *testing.T) {
		n := mesh.Naming{Subsets: true}
		v := capture(t, plain(t), "kube")
		v.Mapping = mapping(t,
			"providers:api.Greeter:1.0.0:g1", "greeter.shop.svc.cluster.local:20880",
			"providers:api.Dub::", "dub.k8sns.svc.cluster.local:20880",
			"providers:api.Headless::", "hl.k8sns.svc.cluster.local:8000",
			"providers:api.External::", "ext.example.com:443",
			"providers:api.Gone::", "gone.shop.svc.cluster.local:20880")
		golden(t, "kube-subsets", joinText(n.Join(v)))
	})
}

// small is a mesh of two hosts, one of them with subsets.
func small(t *testing.T) mesh.JoinInput {
	t.Helper()
	v, r := emptyInput(), plain(t)
	for name, load := range map[string][]string{
		"outbound|1||a.b": {"10.0.0.1", "10.0.0.2"}, "outbound|1|v1|a.b": {"10.0.0.1"}, "outbound|1|v2|a.b": {"10.0.0.2"},
		"outbound|1||c.d": {"10.0.1.1"},
	} {
		v.Clusters[name] = decodeCluster(t, r, edsCluster(name))
		v.Assignments[name] = decodeAssignment(t, r, loadOf(name, load...))
	}
	return v
}

func TestJoin(t *testing.T) {
	keys := []string{"providers:I::", "a.b:1"}
	t.Run("only hosts that carry a key are services and are requested", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, keys...)
		j := (&mesh.Naming{}).Join(v)
		expectNames(t, j, "a.b:1")
		if got := slices.Sorted(maps.Keys(j.EDSNames)); !slices.Equal(got, []string{"outbound|1||a.b"}) {
			t.Errorf("EDSNames = %v, want only that of a.b", got)
		}
		if j.Skipped["c.d:1"] == "" {
			t.Error("Skipped[c.d:1] = \"\", want a reason")
		}
	})
	t.Run("subsets do not double instances", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, keys...)
		for _, n := range []mesh.Naming{{}, {Subsets: true}} {
			j := n.Join(v)
			expectNames(t, j, "a.b:1")
			expectAddresses(t, j.Services[0], "10.0.0.1:1", "10.0.0.2:1")
			for i, want := range []string{"v1", "v2"} {
				if got := j.Services[0].Endpoints[i].Attributes[mesh.AttributeSubset]; n.Subsets && got != want || !n.Subsets && got != "" {
					t.Errorf("endpoint %d has subset %q, want %q if subsets are read", i, got, want)
				}
			}
		}
	})
	t.Run("an endpoint in two subsets reports both", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, keys...)
		v.Assignments["outbound|1|v2|a.b"] = v.Assignments["outbound|1||a.b"]
		j := (&mesh.Naming{Subsets: true}).Join(v)
		if got := j.Services[0].Endpoints[0].Attributes[mesh.AttributeSubset]; got != "v1,v2" {
			t.Errorf("subset = %q, want v1,v2", got)
		}
	})
	t.Run("two interfaces on one host both have its endpoints", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, "providers:I::", "a.b:1", "providers:J:1.0:g", "a.b:1")
		j := (&mesh.Naming{}).Join(v)
		expectNames(t, j, "a.b:1")
		want := []registry.Interface{{Name: "I"}, {Name: "J", Version: "1.0", Group: "g"}}
		if !slices.Equal(j.Services[0].Interfaces, want) {
			t.Errorf("interfaces = %v, want %v", j.Services[0].Interfaces, want)
		}
	})
	t.Run("one key at two hosts is both of them", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, "providers:I::", "a.b:1", "providers:I::", "c.d:1")
		j := (&mesh.Naming{}).Join(v)
		expectNames(t, j, "a.b:1", "c.d:1")
		if len(v.Mapping.Conflicts()) == 0 {
			t.Error("Conflicts() = none, want one")
		}
	})
	t.Run("rules name hosts without a key, keys win", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, keys...)
		n := mesh.Naming{Rules: []mesh.Rule{
			{Host: pattern(t, "*.b"), Port: 2, Interfaces: []registry.Interface{{Name: "never"}}},
			{Host: pattern(t, "*"), Interfaces: []registry.Interface{{Name: "rule.*", Version: "1", Group: "g"}}},
		}}
		j := n.Join(v)
		expectNames(t, j, "a.b:1", "c.d:1")
		if got := j.Services[0].Interfaces; !slices.Equal(got, []registry.Interface{{Name: "I"}}) {
			t.Errorf("interfaces with a key = %v, want I", got)
		}
		if got := j.Services[1].Interfaces; !slices.Equal(got, []registry.Interface{{Name: "rule.c.d", Version: "1", Group: "g"}}) {
			t.Errorf("interfaces by rule = %v, want rule.c.d:1:g", got)
		}
	})
	t.Run("endpoints without any key are those of the rule", func(t *testing.T) {
		v := small(t)
		v.Mapping = keyAt(t, "10.0.0.1")
		rule, plainHosts := []mesh.Rule{{Host: pattern(t, "a.b"), Interfaces: []registry.Interface{{Name: "rule"}}}}, []naming.Pattern{pattern(t, "a.b")}
		for name, tt := range map[string]struct {
			of   mesh.Naming
			want string
		}{
			"none":  {mesh.Naming{}, "[{I  }] 10.0.0.1:1 [{I  }]"},
			"rule":  {mesh.Naming{Rules: rule}, "[{I  } {rule  }] 10.0.0.1:1 [{I  }] 10.0.0.2:1 [{rule  }]"},
			"plain": {mesh.Naming{Plain: plainHosts}, "[{I  }] 10.0.0.1:1 [{I  }] 10.0.0.2:1 []"},
		} {
			j := tt.of.Join(v)
			words := []string{fmt.Sprint(j.Services[0].Interfaces)}
			for _, e := range j.Services[0].Endpoints {
				words = append(words, fmt.Sprintf("%s %v", e.Address(), e.Interfaces))
			}
			if got := strings.Join(words, " "); got != tt.want {
				t.Errorf("%s: %s, want %s", name, got, tt.want)
			}
			if said := strings.Contains(j.Skipped["a.b:1"], "10.0.0.2:1"); said != (name == "none") {
				t.Errorf("%s: Skipped[a.b:1] = %q", name, j.Skipped["a.b:1"])
			}
		}
	})
	t.Run("a rule names several interfaces of one port", func(t *testing.T) {
		v := small(t)
		both := []registry.Interface{{Name: "I", Version: "1"}, {Name: "J", Group: "g"}}
		n := mesh.Naming{Rules: []mesh.Rule{{Host: pattern(t, "a.b"), Port: 1, Interfaces: both}}}
		j := n.Join(v)
		expectNames(t, j, "a.b:1")
		if got := j.Services[0].Interfaces; !slices.Equal(got, both) {
			t.Errorf("interfaces by rule = %v, want %v", got, both)
		}
	})
	t.Run("a rule without a port names every port of its host", func(t *testing.T) {
		v, r := small(t), plain(t)
		const second = "outbound|8080||a.b"
		v.Clusters[second], v.Assignments[second] = decodeCluster(t, r, edsCluster(second)), decodeAssignment(t, r, loadOf(second, "10.0.0.1"))
		rule := mesh.Rule{Host: pattern(t, "a.b"), Interfaces: []registry.Interface{{Name: "I"}}}
		n := mesh.Naming{Rules: []mesh.Rule{rule}}
		j := n.Join(v)
		expectNames(t, j, "a.b:1", "a.b:8080")
		for _, s := range j.Services {
			if !slices.Equal(s.Interfaces, []registry.Interface{{Name: "I"}}) {
				t.Errorf("%s provides %v, want I", s.Name, s.Interfaces)
			}
		}
		n.Rules[0].Port = 1
		expectNames(t, n.Join(v), "a.b:1")
	})
	t.Run("hosts that are not to be exported are left out", func(t *testing.T) {
		v := small(t)
		n := everything(t)
		n.Only = []naming.Pattern{pattern(t, "c.*")}
		j := n.Join(v)
		expectNames(t, j, "c.d:1")
		if !strings.Contains(j.Skipped["a.b:1"], "select does not include") {
			t.Errorf("skipped %v", j.Skipped)
		}
	})
	t.Run("hosts that were imported are not said to lack a key", func(t *testing.T) {
		n := mesh.Naming{Imported: []naming.Pattern{pattern(t, "a.*")}}
		j := n.Join(small(t))
		if !strings.Contains(j.Skipped["a.b:1"], "imported from another registry") || !strings.Contains(j.Skipped["c.d:1"], "no service key") {
			t.Errorf("skipped %v", j.Skipped)
		}
	})
	t.Run("the domain of the cluster does not matter", func(t *testing.T) {
		v, r := emptyInput(), plain(t)
		const name = "outbound|20000||greeter.shop.svc.k8s.corp.example"
		v.Clusters[name] = decodeCluster(t, r, edsCluster(name))
		v.Assignments[name] = decodeAssignment(t, r, loadOf(name, "10.0.0.1"))
		v.Mapping = mapping(t, "providers:I::", "greeter.shop.svc.k8s.corp.example:20000")
		expectNames(t, (&mesh.Naming{}).Join(v), "greeter.shop.svc.k8s.corp.example:20000")
	})
	t.Run("a key for a host that istiod does not show is reported", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, "providers:I::", "gone.b:1")
		j := (&mesh.Naming{}).Join(v)
		if !strings.Contains(j.Skipped["gone.b:1"], "no such cluster") {
			t.Errorf("skipped %v", j.Skipped)
		}
	})
	t.Run("a service without endpoints is one", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, keys...)
		v.Assignments["outbound|1||a.b"] = decodeAssignment(t, plain(t), load("outbound|1||a.b"))
		j := (&mesh.Naming{}).Join(v)
		expectNames(t, j, "a.b:1")
		expectAddresses(t, j.Services[0])
		if len(j.Unknown) != 0 {
			t.Errorf("unknown = %v, want none", j.Unknown)
		}
	})
	t.Run("a service whose endpoints were not reported is none", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, keys...)
		delete(v.Assignments, "outbound|1||a.b")
		j := (&mesh.Naming{}).Join(v)
		expectNames(t, j)
		if j.Unknown["a.b:1"] == nil {
			t.Error("Unknown[a.b:1] = nil, want an error")
		}
	})
	t.Run("the result does not depend on any order", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, "providers:I::", "a.b:1", "providers:I::", "c.d:1")
		n := mesh.Naming{Subsets: true}
		first := joinText(n.Join(v))
		for range 20 {
			if again := joinText(n.Join(v)); again != first {
				t.Fatalf("second join =\n%s\nwant\n%s", again, first)
			}
		}
	})
	t.Run("a row reports its cluster and host", func(t *testing.T) {
		v := small(t)
		v.Mapping = mapping(t, keys...)
		s := (&mesh.Naming{}).Join(v).Services[0]
		if s.Attributes["meshClusterID"] != "outbound|1||a.b" || s.Attributes["meshHostAddr"] != "a.b:1" {
			t.Errorf("attributes = %v, want cluster and host", s.Attributes)
		}
	})
	t.Run("one address in two services is kept apart", func(t *testing.T) {
		v := small(t)
		v.Assignments["outbound|1||c.d"] = v.Assignments["outbound|1||a.b"]
		n := everything(t)
		j := n.Join(v)
		expectNames(t, j, "a.b:1", "c.d:1")
		expectAddresses(t, j.Services[1], "10.0.0.1:1", "10.0.0.2:1")
	})
}

func expectNames(t *testing.T, j mesh.Joined, want ...registry.Name) {
	t.Helper()
	var got []registry.Name
	for _, s := range j.Services {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("services %v, want %v", got, want)
	}
}

func expectAddresses(t *testing.T, s *registry.Service, want ...string) {
	t.Helper()
	var got []string
	for _, e := range s.Endpoints {
		got = append(got, e.Address())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: endpoints %v, want %v", s.Name, got, want)
	}
}
