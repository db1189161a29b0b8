package kind

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

func TestMesh_IstiodReplicas(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ address, from, want string }{
		"over xDS, by the service's short name":  {"istiod.istio-system.svc:15012", "debug-xds", "istiod.istio-system.svc.corp.example:15012"},
		"over HTTP, by the service's short name": {"istiod.istio-system.svc:15010", "debug-http", "istiod.istio-system.svc.corp.example:15010"},
		"name and namespace":                     {"istiod.istio-system:15010", "debug-http", "istiod.istio-system.svc.corp.example:15010"},
		"the full name":                          {"istiod.istio-system.svc.corp.example:15012", "debug-xds", "istiod.istio-system.svc.corp.example:15012"},
		"an address is asked itself":             {"127.0.0.1:15010", "debug-http", ""},
		"localhost is asked itself":              {"localhost:15012", "debug-xds", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var o mesh.Options
			ask := replicas(&config.Istiod{Address: tc.address, ClusterDomain: "corp.example"}, tc.from, &o, &debug.Endpoints{})
			if tc.want != "" {
				if got := o.Istiod.String(); got != tc.want || o.Replicas == nil {
					t.Errorf("endpoints of %s, want %s", got, tc.want)
				}
				return
			}
			got, err := ask(t.Context())
			if err != nil || len(got) != 1 || !strings.HasPrefix(tc.address, got[0]) || o.Replicas != nil {
				t.Errorf("replicas = %q, %v, want %s alone", got, err, tc.address)
			}
		})
	}
}
