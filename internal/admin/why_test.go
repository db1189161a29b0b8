package admin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The answer has the conditions of the registries of a service, and no others.
func TestWhy_RouteConditions(t *testing.T) {
	mesh, other := registry.NewTable(), registry.NewTable()
	mesh.Replace(slices.Values([]*registry.Service{service()}))
	mesh.Stale(errors.New("istiod is away"))
	other.Stale(errors.New("nacos is away"))
	away := func() admin.TargetState { return admin.TargetState{LastError: "refused"} }
	of := func(name string, services ...bridge.ServiceStatus) admin.Target {
		st := inSync()
		st.Services = services
		return admin.Target{Name: name, Kind: "zookeeper", Loop: &loop{st: st}, State: away}
	}
	s, err := admin.New(t.Context(), admin.Options{
		Inputs:  []admin.Input{{Name: "mesh", Table: mesh, State: sourceState}, {Name: "nacos", Table: other, State: sourceState}},
		Targets: []admin.Target{of("zk", bridge.ServiceStatus{Bridge: "b", Service: greeter, Reason: bridge.ReasonSynced}), of("zk2")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]string{
		"api.Greeter": {"mesh stale", "zk unreachable"},
		"api.Nobody":  {"mesh stale", "nacos pending", "nacos stale", "zk unreachable", "zk2 unreachable"},
	} {
		var got []string
		for _, c := range s.Why(t.Context(), query).Conditions {
			got = append(got, c.Registry+" "+string(c.Name))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// imported returns a server with a service of Nacos that is served into a mesh, and with an
// unclaimed service.
func imported(t *testing.T) *admin.Server {
	t.Helper()
	table := registry.NewTable()
	table.Replace(slices.Values([]*registry.Service{
		{Name: "spring-cloud:@DEFAULT_GROUP/web2", Application: "shop-web"}, {Name: "spring-cloud:@DEFAULT_GROUP/web2-admin"}, service(),
	}))
	table.Skip("spring-cloud:@DEFAULT_GROUP/web3", "no address")
	l := &loop{st: inSync()}
	l.st.Services = []bridge.ServiceStatus{
		{Bridge: "b", Service: "spring-cloud:@DEFAULT_GROUP/web2", Reason: bridge.ReasonSynced, Groups: []registry.Group{
			{Kind: "service-entry", Namespace: "bridge", Name: "web2.s-http.nacos.bridge.internal"},
		}},
		{Bridge: "b", Service: "spring-cloud:@DEFAULT_GROUP/gone", Reason: bridge.ReasonHeld},
	}
	s, err := admin.New(t.Context(), admin.Options{
		Inputs: []admin.Input{{Name: "nacos", Table: table, State: sourceState}}, Targets: []admin.Target{{Name: "mesh", Loop: l, State: targetState}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Operators query the host that istioctl prints, or the name of an application.
func TestWhy_Names(t *testing.T) {
	s := imported(t)
	const web2, gone = "spring-cloud:@DEFAULT_GROUP/web2", "spring-cloud:@DEFAULT_GROUP/gone"
	for query, want := range map[string][2]registry.Name{ // of a source, and of a target
		web2:                                   {web2, web2},
		"web2":                                 {web2, web2},
		"shop-web":                             {web2, web2},
		"web2.s-http.nacos.bridge.internal":    {web2, web2},
		"web2.s-http.nacos.bridge.internal:80": {web2, web2},
		"gone":                                 {"", gone},
		"greeter":                              {greeter, ""},
		"greeter.shop.svc.cluster.local":       {greeter, ""},
		"web":                                  {},
		"outbound|20000||greeter.shop.svc.cluster.local":   {greeter, ""},
		"outbound|20000|v1|greeter.shop.svc.cluster.local": {greeter, ""},
		"10.0.0.1:20000": {greeter, ""},
		"10.0.0.9:20000": {},
	} {
		var got [2]registry.Name
		why := s.Why(t.Context(), query)
		if len(why.Sources) > 0 {
			got[0] = why.Sources[0].Service
		}
		if len(why.Services) > 0 {
			got[1] = why.Services[0].Service
		}
		if got != want || len(why.Sources) > 1 || len(why.Services) > 1 {
			t.Errorf("%s is %q, want %q: %+v", query, got, want, why)
		}
	}
}

// Operators query the interface or address from a hold, an event or the log of a consumer.
// The source no longer knows them.
func TestWhy_GoneFromSource(t *testing.T) {
	const pay = registry.Name("dubbo-interface:/dubbo/providers:shop.Pay::")
	host := registry.Group{Kind: "service-entry", Namespace: "bridge", Name: "shop.x-pay.k0-0-tri.zk.bridge.internal"}
	node := registry.Group{Kind: "dubbo-interface", Namespace: "/dubbo", Name: "api.Old"}
	l := &loop{st: inSync()}
	l.st.Services = []bridge.ServiceStatus{
		{Bridge: "b", Service: pay, Reason: bridge.ReasonHeld, Groups: []registry.Group{host}, Left: []string{host.String() + " 10.1.1.1:20880"}},
		{Bridge: "b", Service: "dubbo-interface:/dubbo/providers:shop.Stock::", Reason: bridge.ReasonSynced, Groups: []registry.Group{{Name: "shop.x-stock"}}},
	}
	l.st.Holds = []bridge.Hold{{ID: "aaa-bbb", Groups: []registry.Group{host, {Name: "else"}}, Entries: []string{host.String() + " 10.1.1.1:20880", ":/else 10.1.1.11:20880"}}}
	l.st.Kept = []bridge.Kept{{Why: "settles", Entries: 1, Groups: []registry.Group{node}, Keys: []string{node.String() + " dubbo://10.1.1.2:20880/api.Old?a=b"}}}
	l.st.Conflicts = []bridge.Conflict{{Group: registry.Group{Name: "api.Taken"}, Key: "tri://10.1.1.3:20880"}}
	s, err := admin.New(t.Context(), admin.Options{
		Inputs: []admin.Input{{Name: "zk", Table: registry.NewTable(), State: sourceState}}, Targets: []admin.Target{{Name: "mesh", Loop: l, State: targetState}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][4]int{ // services, holds, kept, conflicts
		"shop.Pay":             {1, 1, 0, 0},
		"providers:shop.Pay::": {1, 1, 0, 0},
		"10.1.1.1:20880":       {1, 1, 0, 0},
		host.Name:              {1, 1, 0, 0},
		"aaa-bbb":              {1, 1, 0, 0},
		"10.1.1.11:20880":      {0, 1, 0, 0},
		"10.1.1.2:20880":       {0, 0, 1, 0},
		"api.Old":              {0, 0, 1, 0},
		"10.1.1.3:20880":       {0, 0, 0, 1},
		"0.1.1.1:20880":        {},
		"10.1.1.1:2088":        {},
		"10.1.1.1":             {},
	} {
		why := s.Why(t.Context(), query)
		if got := [4]int{len(why.Services), len(why.Holds), len(why.Kept), len(why.Conflicts)}; got != want {
			t.Errorf("why %s finds %v services, holds, kept and conflicts, want %v", query, got, want)
		}
	}
}

// TestWhy_Forgotten shows that a host that is still served is found by its plain name,
// though no source and no service has that name any longer.
func TestWhy_Forgotten(t *testing.T) {
	st := inSync()
	group := func(name string) registry.Group {
		return registry.Group{Kind: "service-entry", Namespace: "istio-system", Name: name, Exclusive: true}
	}
	st.Kept = []bridge.Kept{
		{
			Why: "a service that no source reports", Entries: 2, Groups: []registry.Group{group("other.s-grpc.zk.bridge.internal")},
			Keys: []string{group("other.s-grpc.zk.bridge.internal").String() + " ", group("other.s-grpc.zk.bridge.internal").String() + " 10.0.0.1:80"},
		},
		{Why: "another", Entries: 1, Groups: []registry.Group{group("others.s-grpc.zk.bridge.internal")}},
	}
	s, err := admin.New(t.Context(), admin.Options{Targets: []admin.Target{{Name: "mesh", Kind: "mesh", Loop: &loop{st: st}, State: targetState}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Why(t.Context(), "other").Kept; len(got) != 1 || got[0].Entries != 2 {
		t.Errorf("Kept = %+v, want the host of other", got)
	}
}

func TestWhy_UnknownName(t *testing.T) {
	api := imported(t).Admin()
	for query, want := range map[string]string{
		"greter":               "did you mean greeter.shop.svc.cluster.local:20000?",
		"api.Greter":           "did you mean greeter.shop.svc.cluster.local:20000?",
		"wbe2":                 "did you mean spring-cloud:@DEFAULT_GROUP/web2?",
		"eb2":                  "did you mean spring-cloud:@DEFAULT_GROUP/web2 or spring-cloud:@DEFAULT_GROUP/web2-admin?",
		"something.else.whole": "",
	} {
		text := decode[admin.Problem](t, call(api, "GET", "/api/v1/services/"+query)).Error
		if !strings.Contains(text, want) || want == "" && strings.Contains(text, "did you mean") {
			t.Errorf("%s: %s", query, text)
		}
	}
}
