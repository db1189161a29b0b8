package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestSecureIstiod reads both endpoints and keys over the TLS port of istiod,
// as a service account of the mesh's root namespace.
func TestSecureIstiod(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 18101)
	w.publish(t)
	tls := fmt.Sprintf("caFile: %s, serverName: istiod.istio-system.svc", w.istiod.CA.Root)
	config := w.config()
	config.Istiod = w.istiod.Secure
	config.Mapping = "from: debug-xds, interval: 200ms, connectionGrace: 1s"

	t.Run("with a bearer token whose file is rewritten", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		write(t, file, "not a token\n")
		config.Security = fmt.Sprintf("tls: { %s }\n      tokenFile: %s", tls, file)
		bridge := harness.NewBridge(t, config)
		bridge.Start(t)
		harness.Stays(t, 2*time.Second, "no entries", func() error {
			return harness.Same(len(w.znodes.Children(t, providers)), 0)
		})
		write(t, file, "test:istio-system:xds-bridge\n")
		bridge.AwaitReady(t)
		w.awaitEntries(t, providers, 18101)
		bridge.Stop(t)
	})
	t.Run("with a client certificate", func(t *testing.T) {
		certFile, keyFile := w.istiod.CA.Client(t, "istio-system", "xds-bridge")
		config.Security = fmt.Sprintf("tls: { %s, certFile: %s, keyFile: %s }", tls, certFile, keyFile)
		bridge := harness.StartBridge(t, config)
		w.greet(t, 18102)
		w.awaitEntries(t, providers, 18102)
		bridge.Stop(t)
	})
}

// write replaces a file in one step, as Kubernetes does with a secret.
func write(t *testing.T, file, text string) {
	t.Helper()
	unfinished := file + ".unfinished"
	if err := os.WriteFile(unfinished, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(unfinished, file); err != nil {
		t.Fatal(err)
	}
}
