package admin_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// TestSecretAttributesAreNotShown_I1 shows that what a provider registered
// under a name that says so is not shown, and everything else is.
func TestSecretAttributesAreNotShown_I1(t *testing.T) {
	s := service()
	s.Attributes = registry.Attributes{"accessToken": "hunter2", "side": "provider"}
	s.Endpoints[0].Attributes = registry.Attributes{"DB_PASSWORD": "hunter2", "ak": "hunter2", "zone": "eu-1"}
	table := registry.NewTable()
	table.Replace(slices.Values([]*registry.Service{s}))
	body := call(server(t, table, &loop{}).Admin(), "GET", "/api/v1/services/"+string(greeter)).Body.String()
	if strings.Contains(body, "hunter2") || !strings.Contains(body, `"side": "provider"`) || !strings.Contains(body, `"zone": "eu-1"`) {
		t.Error(body)
	}
	if s.Attributes["accessToken"] != "hunter2" {
		t.Error("the service itself was changed")
	}
}
