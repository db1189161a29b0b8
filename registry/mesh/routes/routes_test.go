package routes_test

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3" // in the capture
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// capture is what a real istiod gave a proxyless client for a host with a
// VirtualService: canary by header, the other calls 90 to 10.
func capture(t testing.TB) *routev3.RouteConfiguration {
	t.Helper()
	data, err := os.ReadFile("testdata/canary.json")
	if err != nil {
		t.Fatal(err)
	}
	var c routev3.RouteConfiguration
	if err := protojson.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

func decode(t testing.TB, c *routev3.RouteConfiguration) *routes.Table {
	t.Helper()
	data, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	name, table, err := routes.Decode(data)
	if err != nil || name != c.GetName() {
		t.Fatalf("%q, %v", name, err)
	}
	return table
}

func headers(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestRoutes_WeightedClusters(t *testing.T) {
	table := decode(t, capture(t))
	if want := (naming.HostAddress{Host: "greeter.shop.svc.cluster.local", Port: 20880}); table.Host != want {
		t.Errorf("host %s", table.Host)
	}
	if len(table.Left) > 0 {
		t.Errorf("left out: %v", table.Left)
	}
	canary := table.Find("/api.Greeter/Hello", headers("x-env", "canary"))
	if canary == nil || canary.Pick(0).Subset != "v2" {
		t.Fatalf("with the header: %+v", canary)
	}
	split := table.Find("/api.Greeter/Hello", headers("x-env", "stable"))
	if split == nil || split.Total() != 100 {
		t.Fatalf("without: %+v", split)
	}
	counts := map[string]int{}
	for at := range split.Total() {
		counts[split.Pick(at).Subset]++
	}
	if counts["v1"] != 90 || counts["v2"] != 10 {
		t.Errorf("shares %v", counts)
	}
}

// with returns the capture with another condition on its first route.
func with(t *testing.T, m *routev3.RouteMatch) *routes.Table {
	t.Helper()
	c := capture(t)
	c.GetVirtualHosts()[0].GetRoutes()[0].Match = m
	return decode(t, c)
}

func header(h *routev3.HeaderMatcher) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}, Headers: []*routev3.HeaderMatcher{h}}
}

func text(m *matcherv3.StringMatcher) *routev3.RouteMatch {
	return header(&routev3.HeaderMatcher{Name: "X-Env", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: m}})
}

func TestConditions(t *testing.T) {
	regex := func(s string) *matcherv3.RegexMatcher { return &matcherv3.RegexMatcher{Regex: s} }
	cases := map[string]struct {
		match   *routev3.RouteMatch
		path    string
		header  []string
		matches bool
	}{
		"exact path":            {&routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/a.S/M"}}, "/a.S/M", nil, true},
		"exact path, longer":    {&routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/a.S/M"}}, "/a.S/M2", nil, false},
		"regex path is whole":   {&routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: regex("/a.*")}}, "/b/a", nil, false},
		"separated prefix":      {&routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: "/a"}}, "/a/b", nil, true},
		"separated prefix, not": {&routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: "/a"}}, "/ab", nil, false},
		"exact header":          {text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "c"}}), "/", []string{"x-env", "c"}, true},
		"no such header":        {text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "c"}}), "/", nil, false},
		"any case":              {text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: "ARY"}, IgnoreCase: true}), "/", []string{"x-env", "canary"}, true},
		"contains":              {text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: "nar"}}), "/", []string{"x-env", "canary"}, true},
		"regex header":          {text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: regex("c.*y")}}), "/", []string{"x-env", "canary"}, true},
		"present":               {header(&routev3.HeaderMatcher{Name: "x-env", HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}), "/", []string{"x-env", ""}, true},
		"absent":                {header(&routev3.HeaderMatcher{Name: "x-env", HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: false}}), "/", nil, true},
		"inverted":              {header(&routev3.HeaderMatcher{Name: "x-env", InvertMatch: true, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}), "/", []string{"x-env", "c"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			table := with(t, c.match)
			found := table.Find(c.path, headers(c.header...))
			if got := found != nil && found.Name == "canary"; got != c.matches || len(table.Left) > 0 {
				t.Errorf("matches: %t, left %v", got, table.Left)
			}
		})
	}
}

func TestRoutes_Unsupported(t *testing.T) {
	for name, m := range map[string]*routev3.RouteMatch{
		"query parameter":    {QueryParameters: []*routev3.QueryParameterMatcher{{Name: "q"}}},
		"long expression":    {PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: strings.Repeat("a", 5000)}}},
		"broken expression":  {PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "("}}},
		"condition of later": header(&routev3.HeaderMatcher{Name: "x", HeaderMatchSpecifier: &routev3.HeaderMatcher_RangeMatch{}}),
	} {
		t.Run(name, func(t *testing.T) {
			table := with(t, m)
			if len(table.Left) != 1 || len(table.Routes) != 1 || table.Routes[0].Name != "split" {
				t.Errorf("left %v, routes %+v", table.Left, table.Routes)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	data, err := proto.Marshal(capture(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("no protobuf"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, table, err := routes.Decode(data)
		if (err == nil) != (table != nil) {
			t.Fatalf("%v, %v", table, err)
		}
		if table == nil {
			return
		}
		if r := table.Find("/a.S/M", headers()); r != nil {
			r.Pick(r.Total() - 1)
		}
	})
}

func TestRoutes_Subscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, dial := istiod(t)
		var reports atomic.Int32
		node, err := ads.Identity{Type: "sidecar", IP: "10.0.0.1", Name: "consumer", Namespace: "shop"}.Node()
		if err != nil {
			t.Fatal(err)
		}
		r, err := routes.New(ads.Options{Address: "passthrough:///istiod", Node: node, Dialer: dial}, func(naming.HostAddress) { reports.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()

		asked := func() []string { return server.Connections()[0].Watches[routes.Type] }

		c := capture(t)
		server.Set(c)
		a := naming.HostAddress{Host: "greeter.shop.svc.cluster.local", Port: 20880}
		r.Watch(a)
		r.Watch(a)
		synctest.Wait()
		if table := r.Get(a); table == nil || len(table.Routes) != 2 || reports.Load() != 1 {
			t.Fatalf("%+v, reported %d times", table, reports.Load())
		}
		if node := server.Connections()[0].Node; node.GetMetadata().GetFields()["GENERATOR"].GetStringValue() != "grpc" {
			t.Errorf("asks as %v", node)
		}
		c = capture(t)
		c.VirtualHosts[0].Routes = c.GetVirtualHosts()[0].GetRoutes()[1:]
		server.Set(c)
		synctest.Wait()
		if table := r.Get(a); len(table.Routes) != 1 || reports.Load() != 2 {
			t.Errorf("after a change: %+v, reported %d times", table, reports.Load())
		}
		r.Unwatch(a)
		synctest.Wait()
		if r.Get(a) == nil || !slices.Equal(asked(), []string{routes.Resource(a)}) {
			t.Errorf("forgotten while one still watches; asked for: %v", asked())
		}
		r.Unwatch(a)
		synctest.Wait()
		if r.Get(a) != nil || len(asked()) > 0 {
			t.Errorf("kept although unwatched; requested: %v", asked())
		}
		server.Set(capture(t))
		synctest.Wait()
		if r.Get(a) != nil || reports.Load() != 2 {
			t.Errorf("reported unwatched hosts %d times", reports.Load())
		}
	})
}

// istiod is a fake one in memory, and how it is dialled.
func istiod(t *testing.T) (*istiodfake.Server, func(context.Context, string) (net.Conn, error)) {
	t.Helper()
	server := istiodfake.NewServer()
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(istiodfake.ServerOptions()...)
	server.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return server, func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
}
