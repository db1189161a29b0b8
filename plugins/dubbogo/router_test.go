package dubbogo

import (
	"context"
	"testing"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// choosing is a cluster that has the router choose, by the port of the invoker.
type choosing struct {
	*base.BaseInvoker
	from  []base.Invoker
	ports map[string]int
}

// Invoke implements base.Invoker.
func (c *choosing) Invoke(_ context.Context, call base.Invocation) result.Result {
	for _, i := range (routing{}).Route(c.from, c.from[0].GetURL(), call) {
		c.ports[i.GetURL().Port]++
	}
	return &result.RPCResult{}
}

// TestTheRoutesOfTheMeshAreHonoured: the header and the share of a VirtualService.
func TestTheRoutesOfTheMeshAreHonoured(t *testing.T) {
	host := naming.HostAddress{Host: "greeter.shop", Port: 80}
	to := func(subset string, weight uint32) routes.Share {
		return routes.Share{Cluster: naming.Cluster{Direction: naming.Outbound, Port: 80, Subset: subset, Host: host.Host}, Weight: weight}
	}
	s := client.Snapshot{Routes: map[naming.HostAddress]*routes.Table{host: {Routes: []routes.Route{
		{Match: routes.Match{Path: routes.Text{Exact: "/api.Greeter/Admin"}}, Clusters: []routes.Share{to("v3", 1)}},
		{Match: routes.Match{Headers: []routes.Header{{Name: "x-env", Text: routes.Text{Exact: "canary"}}}}, Clusters: []routes.Share{to("v2", 1)}},
		{Clusters: []routes.Share{to("v1", 90), to("v2", 10)}},
	}}}}
	service := &registry.Service{Name: registry.Name(host.String()), Attributes: registry.Attributes{mesh.AttributeHost: host.String()}}
	var all []base.Invoker
	for port, subsets := range map[uint16]string{1: "v1", 2: "v2", 3: "v1,v2"} {
		e := client.Endpoint{Service: service, Endpoint: registry.Endpoint{
			Host: "10.0.0.1", Port: port, Attributes: registry.Attributes{mesh.AttributeSubset: subsets},
		}}
		all = append(all, base.NewBaseInvoker(urlOf(s, e, asked{registry.Interface{Name: "api.Greeter"}, "tri"})))
	}
	all = append(all, base.NewBaseInvoker(nil)) // one that was destroyed
	const n = 4000
	calls := func(method string, attached any) map[string]int {
		c := &choosing{base.NewBaseInvoker(nil), all, make(map[string]int)}
		for range n {
			ctx := context.WithValue(t.Context(), constant.AttachmentKey, attached)
			routing{}.Invoke(ctx, c, invocation.NewRPCInvocationWithOptions(invocation.WithMethodName(method)))
		}
		return c.ports
	}
	near := func(got, percent int) bool { return got*100 >= n*(percent-5) && got*100 <= n*(percent+5) }
	if got := calls("Greet", nil); !near(got["1"], 90) || !near(got["2"], 10) || !near(got["3"], 100) {
		t.Errorf("the split: %v", got)
	}
	for name, attached := range map[string]any{
		"a text": map[string]any{"X-Env": "canary"}, "several": map[string]any{"x-env": []string{"canary"}},
	} {
		if got := calls("Greet", attached); got["1"] != 0 || got["2"] != n || got["3"] != n {
			t.Errorf("the header, %s: %v", name, got)
		}
	}
	if got := calls("Admin", nil); len(got) != 0 {
		t.Errorf("a subset without endpoints: %v", got)
	}
}

// TestProvidersOfOthersAreCalled: an application has other registries too.
func TestProvidersOfOthersAreCalled(t *testing.T) {
	others := []base.Invoker{base.NewBaseInvoker(nil)}
	if got := (routing{}).Route(others, new(common.URL), new(invocation.RPCInvocation)); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
