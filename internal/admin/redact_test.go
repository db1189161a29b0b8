package admin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestServices_SecretAttributes shows that only attributes with the name of a secret are
// redacted.
func TestServices_SecretAttributes(t *testing.T) {
	s := service()
	s.Attributes = registry.Attributes{"accessToken": "hunter2", "side": "provider"}
	s.Endpoints[0].Attributes = registry.Attributes{"DB_PASSWORD": "hunter2", "ak": "hunter2", "zone": "eu-1"}
	table := registry.NewTable()
	table.Replace(slices.Values([]*registry.Service{s}))
	body := call(server(t, table, &loop{}).Admin(), "GET", "/api/v1/services/"+string(greeter)).Body.String()
	if strings.Contains(body, "hunter2") || !strings.Contains(body, `"side": "provider"`) || !strings.Contains(body, `"zone": "eu-1"`) {
		t.Errorf("answer = %s, want the secrets hidden and all else kept", body)
	}
	if s.Attributes["accessToken"] != "hunter2" {
		t.Error("the service itself was changed")
	}
}

// TestServices_SecretTexts shows that secrets in errors and keys are redacted. These may
// quote the URL of a provider.
func TestServices_SecretTexts(t *testing.T) {
	table := registry.NewTable()
	table.Replace(slices.Values([]*registry.Service{service()}))
	table.Skip("tri://10.0.0.9:1/x?token=hunter2", "no port: tri://ann:hunter2@h/x")
	table.Unknown("other*", errors.New("get /x?password=hunter2: 403"))
	l := &loop{st: bridge.Status{
		Services: []bridge.ServiceStatus{{
			Bridge: "b", Service: greeter, Groups: []registry.Group{group()}, LastError: "set /dubbo/x/providers/tri%3A%2F%2Fh%3Ftoken%3Dhunter2: no auth",
		}},
		Holds:     []bridge.Hold{{ID: "h1", Bridge: "b", Entries: []string{"tri://10.0.0.1:1?token=hunter2"}}},
		Conflicts: []bridge.Conflict{{Group: group(), Key: "tri://10.0.0.9:1?token=hunter2", Winner: "another"}},
	}}
	api := server(t, table, l).Admin()
	for _, path := range []string{"status", "services/" + string(greeter), "holds", "conflicts"} {
		w := call(api, "GET", "/api/v1/"+path)
		if body := w.Body.String(); w.Code != 200 || strings.Contains(body, "hunter2") || !strings.Contains(body, "redacted") {
			t.Errorf("GET %s = %d %s, want 200 with the secrets hidden", path, w.Code, body)
		}
	}
}
