package metadata_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// lines is a format of one entry for each offered endpoint.
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
	return metadata.Encoded(s, entries, left)
}

func TestProjection(t *testing.T) {
	t.Parallel()
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
		"every format":             {one, at(good, ill), "one 10.0.0.1=value mesh,two 10.0.0.1=value mesh", "", ""},
		"its own format alone":     {with(func(p *metadata.Projection) { p.Same = true }), at(good), "one 10.0.0.1=value mesh", "", ""},
		"excluded":                 {with(func(p *metadata.Projection) { p.Select.Exclude = []naming.Pattern{orders} }), at(good), "", `select.exclude names it by "orders"`, registry.Excluded},
		"one address out of reach": {one, at(good, loop), "one 10.0.0.1=value mesh,two 10.0.0.1=value mesh", "left out: endpoint \"127.0.0.1:80\": loopback", ""},
		"no address within reach":  {one, at(loop, ill), "", "left out: endpoint \"127.0.0.1:80\": loopback", registry.Unreachable},
		"an address that is called": {with(func(p *metadata.Projection) {
			p.Reach = &naming.Reach{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		}), at(loop), "one 127.0.0.1=value mesh,two 127.0.0.1=value mesh", "", ""},
		"what came from there": {one, at(ours), "", "left out: endpoint \"10.0.0.4:80\": loop: it came from there", registry.Returned},
		"beside what came from there": {
			one, at(good, ours), "one 10.0.0.1=value mesh,two 10.0.0.1=value mesh", "left out: endpoint \"10.0.0.4:80\": loop", "",
		},
		"left out by the formats":   {one, at(good, bad), "one 10.0.0.1=value mesh,two 10.0.0.1=value mesh", "left out: bad protocol at 10.0.0.3\nbad protocol at 10.0.0.3", ""},
		"a format that writes none": {one, at(bad), "", "one:/orders: bad protocol at 10.0.0.3", "fails"},
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
			left, beside := errors.AsType[*registry.LeftOut](err)
			switch {
			case err == nil:
				if tt.left != "" {
					t.Errorf("no error, want %q", tt.left)
				}
			case tt.left == "" || !strings.HasPrefix(err.Error(), tt.left):
				t.Errorf("error %q, want %q", err, tt.left)
			case beside && left.All != tt.all || !beside && tt.all != "fails":
				t.Errorf("error %#v, want all %q", err, tt.all)
			}
		})
	}
}
