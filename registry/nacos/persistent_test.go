package nacos_test

import (
	"strings"
	"testing"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// TestTarget_CheckFindsPersistentInstances: Nacos accepts none of ours in the same service.
func TestTarget_CheckFindsPersistentInstances(t *testing.T) {
	for name, isEphemeral := range map[string]bool{"persistent": false, "ephemeral": true} {
		bubble(t, name, func(t *testing.T) {
			r := start(t, nacosfake.NewServer(), nil)
			r.server.Set(service(greeter), "provider", model.Instance{
				Ip: "10.0.0.9", Port: 1, Weight: 1, Healthy: true, Enable: true, Ephemeral: isEphemeral, ClusterName: "DEFAULT", Metadata: map[string]string{"protocol": "tri"},
			})
			report, err := r.target.Check(t.Context())
			if err != nil || report.Write != nil {
				t.Fatalf("Check = %+v, %v", report, err)
			}
			if found := report.Persistent == greeter.Name; found == isEphemeral {
				t.Errorf("Check = %+v, want persistent instances: %t", report, !isEphemeral)
			}
		})
	}
}

// TestResponseError_Persistent: the error of a server says what to do.
func TestResponseError_Persistent(t *testing.T) {
	err := &nacos.ResponseError{
		Op: "BatchInstanceRequest", ResultCode: 500, ErrorCode: 400,
		Message: "Current service DEFAULT_GROUP@@orders is persistent service, can't batch register ephemeral instance.",
	}
	if text := err.Error(); !strings.Contains(text, "another group") {
		t.Errorf("Error() = %s, want a remedy", text)
	}
}
