package metadata_test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// lines is a format with one entry for each offered endpoint.
type lines string

func (l lines) Kind() string { return string(l) }

func (l lines) Encode(s *registry.Service) ([]registry.Entry, error) {
	var entries []registry.Entry
	var left []error
	for _, e := range s.Endpoints {
		switch {
		case e.Protocol == "bad":
			left = append(left, errors.New("bad protocol at "+e.Host))
		case e.Health.Offered():
			entries = append(entries, registry.Entry{
				Group: registry.Group{Kind: string(l), Name: string(s.Name)}, Key: e.Host, Value: s.Attributes["a"] + " " + string(e.Path),
			})
		}
	}
	return metadata.Encoded(entries, left)
}

// refusing is a format that refuses every service.
type refusing struct{}

func (refusing) Kind() string { return "refusing" }

func (refusing) Encode(*registry.Service) ([]registry.Entry, error) {
	return metadata.Encoded(nil, []error{errors.New("the name is unfit")})
}

func TestProjection(t *testing.T) {
	t.Parallel()
	place := func(format, root string) registry.Place {
		return registry.NewPlace(registry.Group{Kind: format, Namespace: root}, nil)
	}
	at := func(endpoints ...registry.Endpoint) *registry.Service {
		return &registry.Service{Name: "one:/orders", Attributes: registry.Attributes{"b": "value"}, Endpoints: endpoints}
	}
	good, ill, loop := registry.Endpoint{Host: "10.0.0.1", Port: 80}, registry.Endpoint{Host: "10.0.0.2", Health: registry.Draining}, registry.Endpoint{Host: "127.0.0.1", Port: 80}
	bad, ours := registry.Endpoint{Host: "10.0.0.3", Protocol: "bad"}, registry.Endpoint{Host: "10.0.0.4", Port: 80, Path: "zook"}
	orders, err := naming.ParsePattern("orders")
	if err != nil {
		t.Fatal(err)
	}
	one := metadata.Projection{
		Formats: []metadata.Encoder{lines("one"), lines("two")}, Reach: &naming.Reach{}, Rules: metadata.Rules{Rename: map[string]string{"b": "a"}},
		Route: func() metadata.Route { return metadata.Route{From: "mesh", To: "zook"} },
	}
	with := func(change func(*metadata.Projection)) metadata.Projection {
		p := one
		change(&p)
		return p
	}
	for name, tt := range map[string]struct {
		p    metadata.Projection
		of   *registry.Service
		want string // the entries
		left string // the error; empty: none
		all  registry.Absence
	}{
		"every format": {one, at(good, ill), "one 10.0.0.1=value mesh,two 10.0.0.1=value mesh", "", ""},
		"the format of its place": {with(func(p *metadata.Projection) {
			p.Places = []registry.Place{place("one", ""), place("one", "/below")}
		}), at(good), "one 10.0.0.1=value mesh", "", ""},
		"excluded":                 {with(func(p *metadata.Projection) { p.Select.Exclude = []naming.Pattern{orders} }), at(good), "", `select.exclude matches it by "orders"`, registry.Skipped},
		"one address out of reach": {one, at(good, loop), "one 10.0.0.1=value mesh,two 10.0.0.1=value mesh", "left out: endpoint \"127.0.0.1:80\": loopback", ""},
		"no address within reach":  {one, at(loop, ill), "", "left out: endpoint \"127.0.0.1:80\": loopback", registry.Unwritable},
		"an address that is called": {with(func(p *metadata.Projection) {
			p.Reach = &naming.Reach{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		}), at(loop), "one 127.0.0.1=value mesh,two 127.0.0.1=value mesh", "", ""},
		"from the target, out of reach": {one, at(registry.Endpoint{Host: "127.0.0.1", Port: 80, Path: "zook"}), "", "left out: endpoint \"127.0.0.1:80\": loop: it came from the target registry", registry.Returned},
		"from the target":               {one, at(ours), "", "left out: endpoint \"10.0.0.4:80\": loop: it came from the target registry", registry.Returned},
		"next to one from the target": {
			one, at(good, ours), "one 10.0.0.1=value mesh,two 10.0.0.1=value mesh", "left out: endpoint \"10.0.0.4:80\": loop", "",
		},
		"left out by the formats": {one, at(good, bad), "one 10.0.0.1=value mesh,two 10.0.0.1=value mesh", "left out: bad protocol at 10.0.0.3\nbad protocol at 10.0.0.3", ""},
		"refused by all formats":  {one, at(bad), "", "left out: bad protocol at 10.0.0.3\nbad protocol at 10.0.0.3", registry.Unwritable},
		"refused by one format": {with(func(p *metadata.Projection) {
			p.Formats = []metadata.Encoder{lines("one"), refusing{}}
		}), at(good), "one 10.0.0.1=value mesh", "left out: the name is unfit", registry.Unwritable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries, err := tt.p.Entries(tt.of)
			var got []string
			for _, e := range entries {
				got = append(got, e.Group.Kind+" "+e.Key+"="+e.Value)
			}
			if strings.Join(got, ",") != tt.want {
				t.Errorf("entries %q, want %q", got, tt.want)
			}
			left, isLeftOut := errors.AsType[*registry.LeftOut](err)
			switch {
			case err == nil:
				if tt.left != "" {
					t.Errorf("no error, want %q", tt.left)
				}
			case tt.left == "" || !strings.HasPrefix(err.Error(), tt.left):
				t.Errorf("error %q, want %q", err, tt.left)
			case !isLeftOut || left.All != tt.all:
				t.Errorf("error %#v, want all %q", err, tt.all)
			}
		})
	}
}

// interfaces is a format with one group for each interface, with a head.
type interfaces struct{ lines }

func (interfaces) Encode(s *registry.Service) ([]registry.Entry, error) {
	var entries []registry.Entry
	for _, i := range s.Interfaces {
		g := registry.Group{Kind: "interfaces", Name: i.Name}
		entries = append(entries, registry.Entry{Group: g, Key: registry.HeadKey, Value: string(s.Name)})
		for _, e := range s.Endpoints {
			if e.Protocol == "bad" {
				return nil, errors.New("bad protocol at " + e.Host)
			}
			entries = append(entries, registry.Entry{Group: g, Key: e.Host})
		}
	}
	return registry.Sorted(entries), nil
}

// TestProjection_Interfaces shows that endpoints of one service that provide different
// interfaces are offered only for their own.
func TestProjection_Interfaces(t *testing.T) {
	t.Parallel()
	a, b, c := registry.Interface{Name: "A"}, registry.Interface{Name: "B"}, registry.Interface{Name: "C"}
	s := &registry.Service{Name: "h:1", Interfaces: []registry.Interface{a, b, c}, Endpoints: []registry.Endpoint{
		{Host: "10.0.0.1", Interfaces: []registry.Interface{a}},
		{Host: "10.0.0.2", Interfaces: []registry.Interface{a, b}},
		{Host: "10.0.0.3", Interfaces: []registry.Interface{a}},
		{Host: "10.0.0.4", Interfaces: []registry.Interface{}},
	}}
	p := metadata.Projection{Formats: []metadata.Encoder{interfaces{}}}
	entries, err := p.Entries(s)
	var got []string
	for _, e := range entries {
		got = append(got, e.Group.Name+":"+e.Key)
	}
	if want := "A: A:10.0.0.1 A:10.0.0.2 A:10.0.0.3 B: B:10.0.0.2 C:"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("Entries() = %v, %v, want %s", got, err, want)
	}
	s.Endpoints[1].Protocol = "bad"
	if entries, err := p.Entries(s); len(entries) != 4 || err == nil || !strings.Contains(err.Error(), "bad protocol at 10.0.0.2") {
		t.Errorf("Entries() = %v, %v, want what the others provide", entries, err)
	}
	s.Endpoints, s.Interfaces = s.Endpoints[1:2], []registry.Interface{a, b}
	entries, err = p.Entries(s)
	if left := registry.LeftOutBy(err); len(entries) > 0 || left == nil || left.All != registry.Unwritable {
		t.Errorf("Entries() = %v, %v, want none: the target can hold none", entries, err)
	}
}

// TestProjection_Select shows that a service is selected by the names that operators know,
// regardless of where it is stored.
func TestProjection_Select(t *testing.T) {
	t.Parallel()
	greeter := &registry.Service{
		Name:       "dubbo-interface:/dubbo/providers:org.acme.Greeter:1.0:blue",
		Interfaces: []registry.Interface{{Name: "org.acme.Greeter", Version: "1.0", Group: "blue"}},
	}
	inNacos := &registry.Service{Name: "dubbo-interface:@DEFAULT_GROUP/providers:org.acme.Greeter:1.0:blue", Interfaces: greeter.Interfaces}
	for name, tt := range map[string]struct {
		of       *registry.Service
		pattern  string
		selected bool
	}{
		"an interface":                            {greeter, "org.acme.Greeter", true},
		"interfaces of a package":                 {greeter, "org.acme.*", true},
		"an interface in Nacos":                   {inNacos, "org.acme.Greeter", true},
		"a service key":                           {greeter, "providers:org.acme.Greeter:1.0:blue", true},
		"service keys of a version":               {inNacos, "providers:org.acme.Greeter:1.0:*", true},
		"the end of the name in the status":       {greeter, "*.Greeter:1.0:blue", true},
		"the format, by the name in the status":   {inNacos, "dubbo-interface:*", true},
		"an application":                          {&registry.Service{Name: "spring-cloud:/services/orders"}, "orders", true},
		"a host of a mesh":                        {&registry.Service{Name: "greeter.shop.svc.cluster.local:20000"}, "*.shop.svc.cluster.local", true},
		"another interface":                       {greeter, "org.acme.Greet", false},
		"another package":                         {greeter, "com.acme.*", false},
		"an interface of a host, which it is not": {&registry.Service{Name: "greeter.shop.svc.cluster.local:20000", Interfaces: greeter.Interfaces}, "org.acme.*", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := naming.ParsePattern(tt.pattern)
			if err != nil {
				t.Fatal(err)
			}
			patterns := []naming.Pattern{p}
			if err := (metadata.Selection{Include: patterns}).Refuse(tt.of); (err == nil) != tt.selected {
				t.Errorf("included: %v", err)
			}
			if err := (metadata.Selection{Exclude: patterns}).Refuse(tt.of); (err != nil) != tt.selected {
				t.Errorf("excluded: %v", err)
			}
		})
	}
}

// hops returns a path through the given registries.
func hops(ids ...string) registry.Path {
	var p registry.Path
	for _, id := range ids {
		p += registry.Path(metadata.Hop(id))
	}
	return p
}

// passes returns the path of the service and of each of its endpoints.
func passes(s *registry.Service) []registry.Path {
	if s == nil {
		return nil
	}
	all := []registry.Path{s.Path}
	for _, e := range s.Endpoints {
		all = append(all, e.Path)
	}
	return all
}

func TestRoute(t *testing.T) {
	t.Parallel()
	route := metadata.Route{From: metadata.Hop("here"), To: metadata.Hop("there")}
	for name, tt := range map[string]struct {
		service   registry.Path
		endpoints []registry.Path
		want      []registry.Path // of the service, then of each endpoint; none: nothing passes
		refused   int
	}{
		"from the source itself":                       {endpoints: []registry.Path{"", ""}, want: []registry.Path{hops("here"), hops("here"), hops("here")}},
		"from another registry":                        {endpoints: []registry.Path{hops("a")}, want: []registry.Path{hops("here"), hops("a", "here")}},
		"the service's path is its own":                {service: hops("a"), endpoints: []registry.Path{"", hops("b")}, want: []registry.Path{hops("a", "here"), hops("a", "here"), hops("b", "here")}},
		"from the target":                              {endpoints: []registry.Path{hops("there")}, refused: 1},
		"a ring of three ends":                         {endpoints: []registry.Path{hops("there", "a")}, refused: 1},
		"its neighbours pass":                          {endpoints: []registry.Path{hops("there"), ""}, want: []registry.Path{hops("here"), hops("here")}, refused: 1},
		"a service from the target":                    {service: hops("there"), endpoints: []registry.Path{"", ""}, refused: 2},
		"a fourth hop is the last":                     {endpoints: []registry.Path{hops("a", "b", "c")}, want: []registry.Path{hops("here"), hops("a", "b", "c", "here")}},
		"a fifth counts as a loop":                     {endpoints: []registry.Path{hops("a", "b", "c", "d")}, refused: 1},
		"a service without endpoints":                  {want: []registry.Path{hops("here")}},
		"one without endpoints that passed the target": {service: hops("there"), refused: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &registry.Service{Name: "x", Path: tt.service}
			for i, p := range tt.endpoints {
				s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0." + strconv.Itoa(i+1), Port: 1, Path: p})
			}
			before := passes(s)
			got, err := route.Pass(s)
			wantSame(t, passes(got), tt.want)
			wantSame(t, passes(s), before)
			refused := 0
			if err != nil {
				refused = strings.Count(err.Error(), "loop: ")
			}
			if refused != tt.refused {
				t.Errorf("%d reasons, want %d: %v", refused, tt.refused, err)
			}
		})
	}
	t.Run("a route without names changes nothing", func(t *testing.T) {
		t.Parallel()
		s := &registry.Service{Path: hops("a"), Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 1}}}
		got, err := metadata.Route{}.Pass(s)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, passes(got), []registry.Path{hops("a"), hops("a")})
	})
}

func wantSame(t *testing.T, got, want []registry.Path) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
}

func TestRules(t *testing.T) {
	in := registry.Attributes{"env": "prod", "version": "v1", "k8s.io/app": "shop", "meshHostAddr": "a:1", "xdsb": "m"}
	for name, tc := range map[string]struct {
		rules metadata.Rules
		want  registry.Attributes
		left  bool
	}{
		"none":                     {want: in},
		"keep, and fixed keys":     {rules: metadata.Rules{Keep: []string{"env"}}, want: registry.Attributes{"env": "prod", "meshHostAddr": "a:1", "xdsb": "m"}},
		"drop by pattern":          {rules: metadata.Rules{Drop: []string{"k8s.io/*", "mesh*"}}, want: registry.Attributes{"env": "prod", "version": "v1", "meshHostAddr": "a:1", "xdsb": "m"}},
		"drop wins over keep":      {rules: metadata.Rules{Keep: []string{"*"}, Drop: []string{"env", "version", "k8s.io/app"}}, want: registry.Attributes{"meshHostAddr": "a:1", "xdsb": "m"}},
		"rename":                   {rules: metadata.Rules{Keep: []string{"env"}, Rename: map[string]string{"env": "stage"}}, want: registry.Attributes{"stage": "prod", "meshHostAddr": "a:1", "xdsb": "m"}},
		"rename onto another":      {rules: metadata.Rules{Drop: []string{"k8s.io/app"}, Rename: map[string]string{"env": "version"}}, want: registry.Attributes{"version": "v1", "meshHostAddr": "a:1", "xdsb": "m"}, left: true},
		"values by the new name":   {rules: metadata.Rules{Keep: []string{"env"}, Rename: map[string]string{"env": "stage"}, Values: []metadata.ValueRule{{"stage", "prod", "live"}, {"stage", "live", "x"}}}, want: registry.Attributes{"stage": "live", "meshHostAddr": "a:1", "xdsb": "m"}},
		"a value that is left out": {rules: metadata.Rules{Keep: []string{"env"}, Values: []metadata.ValueRule{{Key: "env", From: "prod"}}}, want: registry.Attributes{"meshHostAddr": "a:1", "xdsb": "m"}},
		"add, replacing a value":   {rules: metadata.Rules{Keep: []string{"env"}, Add: map[string]string{"env": "mesh", "by": "bridge"}}, want: registry.Attributes{"env": "mesh", "by": "bridge", "meshHostAddr": "a:1", "xdsb": "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.rules.Check(); err != nil {
				t.Fatal(err)
			}
			before := maps.Clone(in)
			s := &registry.Service{Name: "a", Attributes: in, Endpoints: []registry.Endpoint{{Host: "h", Attributes: in}, {Host: "i"}}}
			got, err := tc.rules.Apply(s)
			if (err != nil) != tc.left {
				t.Errorf("left out: %v", err)
			}
			whole := maps.Clone(got.Attributes)
			maps.Copy(whole, got.Endpoints[0].Attributes)
			if !maps.Equal(got.Attributes, tc.want) || !maps.Equal(whole, tc.want) {
				t.Errorf("service %v\nendpoint %v\nwant %v", got.Attributes, got.Endpoints[0].Attributes, tc.want)
			}
			if !maps.Equal(in, before) || len(got.Endpoints[1].Attributes) > 0 {
				t.Error("the input was changed, or an endpoint without attributes got some")
			}
		})
	}
}

func TestProjection_InvalidRules(t *testing.T) {
	for name, r := range map[string]metadata.Rules{
		"a pattern of nothing": {Keep: []string{""}},
		"two stars":            {Drop: []string{"a*b*"}},
		"another's mark":       {Add: map[string]string{"xdsb": "x"}},
		"a name for the mark":  {Rename: map[string]string{"a": "xdsb"}},
		"the unit of weights":  {Rename: map[string]string{"meshHostAddr": "a"}},
		"a value of the mark":  {Values: []metadata.ValueRule{{Key: "xdsb"}}},
		"an empty key":         {Add: map[string]string{"": "x"}},
	} {
		if r.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
