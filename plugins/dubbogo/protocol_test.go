package dubbogo_test

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/dubbogo"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestAnotherProtocolDeletesTheOldURL: V91. dubbo-go keeps invokers by URL.
func TestAnotherProtocolDeletesTheOldURL(t *testing.T) {
	i := registry.Interface{Name: "api.Greeter"}
	of := func(protocol string) client.Snapshot {
		s := &registry.Service{Name: "x", Interfaces: []registry.Interface{i}, Protocol: protocol}
		return client.Snapshot{Endpoints: []client.Endpoint{{Endpoint: registry.Endpoint{Host: "10.0.0.1", Port: 1}, Service: s}}}
	}
	for _, e := range dubbogo.Events(i, of("dubbo"), of("tri")) {
		if e.Action == dubbogo.Delete && strings.HasPrefix(e.URL, "dubbo://") {
			return
		}
	}
	t.Error("the URL of the protocol that is no longer spoken is never deleted")
}
