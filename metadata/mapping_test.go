package metadata_test

import (
	"encoding/json"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

func key(t testing.TB, s string) naming.ServiceKey {
	t.Helper()
	k, err := naming.ParseServiceKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func address(t testing.TB, s string) naming.HostAddress {
	t.Helper()
	a, err := naming.ParseHostAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// merge builds the mapping of the publications of clients, in order.
func merge(t testing.TB, values ...string) metadata.Mapping {
	t.Helper()
	return metadata.NewMapping(claims(t, values...))
}

func claims(t testing.TB, values ...string) iter.Seq[metadata.Claim] {
	t.Helper()
	return func(yield func(metadata.Claim) bool) {
		for i, value := range values {
			p, failures := metadata.ParsePublication("client-"+string(rune('a'+i)), value)
			if len(failures) > 0 {
				t.Errorf("failures: %v", failures)
			}
			for c := range p.Claims() {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// text prints a mapping, one key per line.
func text(m metadata.Mapping) string {
	var b strings.Builder
	for k, addresses := range m.All() {
		b.WriteString(k.String())
		for _, a := range addresses {
			b.WriteString(" " + a.String())
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestParsePublication(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		value    string
		hosts    map[string]string
		unread   bool
		failures int
	}{
		"the value of dubbo-go": {
			value: `{"providers:api.Greeter::":"app.default.svc.cluster.local:20000","providers:grpc.reflection.v1alpha.ServerReflection::":"app.default.svc.cluster.local:20000"}`,
			hosts: map[string]string{
				"providers:api.Greeter::":                              "app.default.svc.cluster.local:20000",
				"providers:grpc.reflection.v1alpha.ServerReflection::": "app.default.svc.cluster.local:20000",
			},
		},
		"nothing registered yet":            {value: ""},
		"everything withdrawn":              {value: "{}"},
		"not JSON":                          {value: `{"providers:a::"`, unread: true, failures: 1},
		"JSON that stops":                   {value: `{"providers:a::":"h:1"`, unread: true, failures: 1},
		"JSON that stops after a comma":     {value: `{"providers:a::":"h:1",`, unread: true, failures: 1},
		"JSON with something behind it":     {value: `{}{}`, unread: true, failures: 1},
		"an array":                          {value: `[]`, unread: true, failures: 1},
		"null":                              {value: `null`, unread: true, failures: 1},
		"a value that is not a string":      {value: `{"providers:a::":1,"providers:b::":"h:1"}`, hosts: map[string]string{"providers:b::": "h:1"}, failures: 1},
		"a bad key next to a good one":      {value: `{"nonsense":"h:1","providers:b::":"h:1"}`, hosts: map[string]string{"providers:b::": "h:1"}, failures: 1},
		"a bad address next to a good one":  {value: `{"providers:a::":"h","providers:b::":"h:1"}`, hosts: map[string]string{"providers:b::": "h:1"}, failures: 1},
		"a consumer's key":                  {value: `{"consumers:a::":"h:1"}`, failures: 1},
		"a key twice":                       {value: `{"providers:a::":"h:1","providers:a::":"h:2"}`, hosts: map[string]string{"providers:a::": "h:1"}, failures: 1},
		"a colon in the group":              {value: `{"providers:org.apache.Y:::tri":"h:1"}`, failures: 1},
		"a path as interface":               {value: `{"providers:../../x::":"h:1"}`, failures: 1},
		"control characters in the address": {value: "{\"providers:a::\":\"h\\u001b[2J:1\"}", failures: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, failures := metadata.ParsePublication("client", c.value)
			got := make(map[string]string)
			for k, a := range p.Hosts {
				got[k.String()] = a.String()
			}
			if !maps.Equal(got, c.hosts) || p.Unread != c.unread || len(failures) != c.failures {
				t.Errorf("got %v, unread %v, failures %v", got, p.Unread, failures)
			}
			if p.Silent != (c.value == "") {
				t.Errorf("silent: %v", p.Silent)
			}
			for _, f := range failures {
				expectPrintable(t, f.Error())
				if f.Client != "client" || f.Text == "" || f.Reason == "" {
					t.Errorf("the error does not say whose and what: %+v", f)
				}
			}
		})
	}
}

func TestUnreadKey(t *testing.T) {
	t.Parallel()
	p, _ := metadata.ParsePublication("c", `{"providers:a::":"h","providers:b::":7,"providers:c::":"h:1"}`)
	want := []naming.ServiceKey{key(t, "providers:a::"), key(t, "providers:b::")}
	if !slices.Equal(p.UnreadKeys, want) {
		t.Errorf("a key with an unreadable address is unknown, not gone: %v", p.UnreadKeys)
	}
}

func expectPrintable(t *testing.T, s string) {
	t.Helper()
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) || len(s) > 2048 {
		t.Errorf("not fit for a log: %q", s)
	}
}

func TestMapping(t *testing.T) {
	t.Parallel()
	const k = "providers:api.Greeter::"
	one, other := `{"`+k+`":"a.d.svc.cluster.local:1"}`, `{"`+k+`":"b.d.svc.cluster.local:2"}`
	t.Run("two apps with one key give the union, in any order", func(t *testing.T) {
		t.Parallel()
		want := []naming.HostAddress{address(t, "a.d.svc.cluster.local:1"), address(t, "b.d.svc.cluster.local:2")}
		for _, m := range []metadata.Mapping{merge(t, one, other), merge(t, other, one), merge(t, one, other, one)} {
			if got := m.Hosts(key(t, k)); !slices.Equal(got, want) {
				t.Errorf("got %v", got)
			}
			c := m.Conflicts()
			if len(c) != 1 || c[0].Kind != metadata.ManyHosts || len(c[0].Clients) != 2 || c[0].Clients[0] == "" {
				t.Errorf("conflicts %+v", c)
			}
		}
	})
	t.Run("one key on two ports of one address is a conflict, and both stay", func(t *testing.T) {
		t.Parallel()
		m := merge(t, `{"`+k+`":"a.d:1"}`, `{"`+k+`":"a.d:2"}`)
		c := m.Conflicts()
		if len(c) != 1 || c[0].Kind != metadata.ManyPorts || len(m.Hosts(key(t, k))) != 2 {
			t.Errorf("conflicts %+v in %s", c, text(m))
		}
	})
	t.Run("replicas of one app agree", func(t *testing.T) {
		t.Parallel()
		m := merge(t, one, one, one)
		if c := m.Conflicts(); len(c) > 0 {
			t.Errorf("conflicts %+v", c)
		}
		if got := m.Client(key(t, k), address(t, "a.d.svc.cluster.local:1")); got != "client-a" {
			t.Errorf("publisher %q", got)
		}
	})
}

func TestMappingReverse(t *testing.T) {
	t.Parallel()
	m := merge(t, `{"providers:b::":"h:1","providers:a::":"h:1"}`, `{"providers:c::":"h:2"}`)
	want := []naming.ServiceKey{key(t, "providers:a::"), key(t, "providers:b::")}
	if got := m.Keys(address(t, "h:1")); !slices.Equal(got, want) {
		t.Errorf("keys of an address: %v", got)
	}
	if m.Len() != 3 || m.Keys(address(t, "h:3")) != nil || m.Hosts(key(t, "providers:x::")) != nil {
		t.Error("the mapping knows too much")
	}
	for range m.All() {
		break // an early end is the caller's right
	}
}

func TestMappingSince(t *testing.T) {
	t.Parallel()
	before := merge(t, `{"providers:moved::":"a:1","providers:same::":"a:1","providers:gone::":"a:1"}`)
	after := merge(t, `{"providers:moved::":"b:1","providers:same::":"a:1","providers:new::":"a:1"}`)
	want := []metadata.KeyChange{
		{Key: key(t, "providers:gone::"), Removed: []naming.HostAddress{address(t, "a:1")}},
		{Key: key(t, "providers:moved::"), Added: []naming.HostAddress{address(t, "b:1")}, Removed: []naming.HostAddress{address(t, "a:1")}},
		{Key: key(t, "providers:new::"), Added: []naming.HostAddress{address(t, "a:1")}},
	}
	got := after.Since(before)
	if !slices.EqualFunc(got, want, func(a, b metadata.KeyChange) bool {
		return a.Key == b.Key && slices.Equal(a.Added, b.Added) && slices.Equal(a.Removed, b.Removed)
	}) {
		t.Errorf("a moved key is a change of that key: %+v", got)
	}
	same := merge(t, `{"providers:moved::":"b:1","providers:same::":"a:1","providers:new::":"a:1"}`)
	if len(after.Since(same)) > 0 || !after.Equal(same) || after.Equal(before) {
		t.Error("equality and difference disagree")
	}
	if !(metadata.Mapping{}).Equal(merge(t)) {
		t.Error("the zero mapping is the empty one")
	}
}

func TestMapping_Without(t *testing.T) {
	t.Parallel()
	k, a := key(t, "providers:a::"), address(t, "h:1")
	claim := func(client string, without ...string) metadata.Claim {
		return metadata.Claim{Key: k, Address: a, Client: client, Without: metadata.HostsOf(slices.Values(without))}
	}
	of := func(claims ...metadata.Claim) metadata.Mapping { return metadata.NewMapping(slices.Values(claims)) }
	for want, m := range map[metadata.Hosts]metadata.Mapping{
		"":                  of(claim("c1", "10.0.0.1"), claim("c2")),
		"10.0.0.1":          of(claim("c1", "10.0.0.2", "10.0.0.1"), claim("c2", "10.0.0.1", "10.0.0.3")),
		"10.0.0.1,10.0.0.2": of(claim("c1", "10.0.0.2", "10.0.0.1")),
	} {
		if got := m.Without(k, a); got != want {
			t.Errorf("Without() = %q, want %q: what one client knows to be provided is", got, want)
		}
	}
	before, after := of(claim("c1")), of(claim("c1", "10.0.0.1"))
	if before.Equal(after) {
		t.Error("Equal() = true for other endpoints")
	}
	for _, m := range [][2]metadata.Mapping{{before, after}, {after, before}} {
		if got := m[0].Since(m[1]); len(got) != 1 || !slices.Equal(got[0].Changed, []naming.HostAddress{a}) || len(got[0].Added)+len(got[0].Removed) > 0 {
			t.Errorf("Since() = %+v, want h:1 as changed", got)
		}
	}
}

// FuzzMapping shows that the order of the clients does not matter.
func FuzzMapping(f *testing.F) {
	f.Fuzz(func(t *testing.T, first, second string, seed uint64) {
		var all []metadata.Claim
		for i, value := range []string{first, second} {
			p, failures := metadata.ParsePublication(string(rune('a'+i)), value)
			for _, failure := range failures {
				expectPrintable(t, failure.Error())
			}
			if p.Unread && (len(p.Hosts) > 0 || json.Valid([]byte(value)) && strings.HasPrefix(value, "{")) {
				t.Errorf("%q counts as unread", value)
			}
			all = slices.AppendSeq(all, p.Claims())
		}
		m := metadata.NewMapping(slices.Values(all))
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		shuffled := metadata.NewMapping(slices.Values(all))
		if !m.Equal(shuffled) || text(m) != text(shuffled) || len(m.Since(shuffled)) > 0 {
			t.Errorf("order matters:\n%s\n%s", text(m), text(shuffled))
		}
		for k, addresses := range m.All() {
			for _, a := range addresses {
				if !slices.Contains(m.Keys(a), k) || m.Client(k, a) == "" {
					t.Errorf("%v at %v is not found in the other direction", k, a)
				}
			}
		}
	})
}

func TestMapping_LegacyKeys(t *testing.T) {
	const value = `{"provider::api.Old":"a.shop:1","api.Bare:1.0:g":"a.shop:2","providers:api.New::":"a.shop:3"}`
	if p, failures := metadata.ParsePublication("c", value); len(p.Hosts) != 1 || len(failures) != 2 {
		t.Errorf("strictly: %v, %v", p.Hosts, failures)
	}
	p, failures := metadata.ParseLegacyPublication("c", value)
	if len(p.Hosts) != 3 || len(failures) != 0 {
		t.Errorf("with old forms: %v, %v", p.Hosts, failures)
	}
	if got := p.Hosts[naming.ServiceKey{Category: naming.Providers, Interface: "api.Bare", Version: "1.0", Group: "g"}]; got.Port != 2 {
		t.Errorf("api.Bare is at %v", got)
	}
}
