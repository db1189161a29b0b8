package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestKeys_APIGenerator reads service keys from the annotations of
// ServiceEntries that a real istiod sends, and nothing of its debug API.
func TestKeys_APIGenerator(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	greet := func(keys string, ports ...int) {
		w.mesh.Apply(t, harness.Service{Host: greetHost, Port: 20000, Endpoints: harness.Local(ports...), Keys: keys})
	}
	greet(greetKey, 18101)
	w.mesh.Apply(t, harness.Service{Host: "plain.shop.svc.cluster.local", Port: 20000, Endpoints: harness.Local(18109)})
	tls := fmt.Sprintf("caFile: %s, serverName: istiod.istio-system.svc", w.istiod.CA.Root)
	config := w.config()
	config.Istiod = w.istiod.Secure
	config.Mapping = "from: api, interval: 200ms"
	as := func(t *testing.T, namespace string) string {
		certFile, keyFile := w.istiod.CA.Client(t, namespace, "xds-bridge")
		return fmt.Sprintf("tls: { %s, certFile: %s, keyFile: %s }\n      node: { namespace: %s }", tls, certFile, keyFile, namespace)
	}

	t.Run("in the root namespace keys come and go", func(t *testing.T) {
		config.Security = as(t, "istio-system")
		bridge := harness.StartBridge(t, config)
		w.awaitEntries(t, providers, 18101)
		if code, out, errs := bridge.Do(t, "preflight"); !strings.Contains(out, "√ service keys: 1 by api") {
			t.Errorf("preflight ends with %d:\n%s%s", code, out, errs)
		}
		greet(greetKey, 18101, 18102)
		w.awaitEntries(t, providers, 18101, 18102)
		const other = "/dubbo/api.Other/providers"
		greet("api.Other", 18101, 18102) // the annotation alone, which istiod pushes to nobody
		w.awaitEntries(t, other, 18101, 18102)
		w.awaitEntries(t, providers)
		w.istiod.Kill()
		w.istiod.Start(t)
		greet("", 18101, 18102)
		w.awaitEntries(t, other)
		greet(greetKey, 18101)
		w.awaitEntries(t, providers, 18101)
		w.mesh.Remove(t, greetHost)
		w.awaitEntries(t, providers)
		bridge.Stop(t)
	})
	for name, refused := range map[string]struct{ address, security, want string }{
		"of another namespace": {w.istiod.Secure, as(t, "shop"), "ENABLE_XDS_API_GENERATOR_AUTH=false"},
		"in plaintext":         {w.istiod.GRPC, "", "use istiod's TLS port (15012)"},
	} {
		t.Run(name+" istiod refuses", func(t *testing.T) {
			config := config
			config.Istiod, config.Security = refused.address, refused.security
			bridge := harness.NewBridge(t, config)
			code, out, errs := bridge.Do(t, "preflight")
			if code != 1 || !strings.Contains(out, "× service keys: mapping from the api generator at") || !strings.Contains(out, refused.want) {
				t.Errorf("preflight ends with %d:\n%s%s", code, out, errs)
			}
		})
	}
}
