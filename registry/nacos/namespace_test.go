package nacos_test

import (
	"testing"
	"time"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// TestNamespaceThatDoesNotExist: a server takes what is written there, so that
// the connection says it, until the namespace is made.
func TestNamespaceThatDoesNotExist(t *testing.T) {
	for name, tt := range map[string]struct {
		listed map[string]string
		want   string
	}{
		"it does not exist":         {listed: map[string]string{"": "public", "5f3c": "Test"}, want: `the namespace does not exist: "Test" is the name of the one with the id "5f3c"`},
		"it exists":                 {listed: map[string]string{"": "public", "Test": "Test"}},
		"the server does not tell":  {},
		"the server reports no one": {listed: map[string]string{}},
	} {
		bubble(t, name, func(t *testing.T) {
			server := nacosfake.NewServer()
			server.Namespaces = tt.listed
			r := start(t, server, func(o *nacos.Options) { o.Namespace = "Test" })
			r.write(t, entry(greeter, "10.0.0.1", mine))
			time.Sleep(time.Second)
			if got := r.client.State(); !got.Connected || got.LastError != tt.want {
				t.Errorf("%+v", got)
			}
			if tt.want == "" {
				return
			}
			server.AddNamespace("Test")
			time.Sleep(time.Minute)
			if got := r.client.State(); !got.Connected || got.LastError != "" {
				t.Errorf("once it exists: %+v", got)
			}
		})
	}
}
