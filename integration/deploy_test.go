package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestDeploy_Manifests reads the file out of the
// ConfigMap of each manifest and has the program check it.
func TestDeploy_Manifests(t *testing.T) {
	t.Setenv("POD_NAME", "xds-bridge-0")
	t.Setenv("POD_IP", "192.0.2.1")
	for _, name := range []string{"kubernetes.yaml", "data-planes.yaml"} {
		t.Run(name, func(t *testing.T) { testManifest(t, name) })
	}
}

func testManifest(t *testing.T, name string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(harness.Root(t), "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	var config []string
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var object struct {
			Kind string            `yaml:"kind"`
			Data map[string]string `yaml:"data"`
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if text, held := object.Data["config.yaml"]; held {
			config = append(config, text)
		}
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if len(config) != 1 {
		t.Fatalf("%d configurations, want one", len(config))
	}
	write(t, file, config[0])
	if code, _, errOut := harness.Run(t, harness.Program(t), "validate", "--skip-files", file); code != 0 {
		t.Errorf("validate ends with %d: %s", code, errOut)
	}
}

// TestDeploy_AlertsFireInTime has Prometheus' own tool run the alerts over time.
func TestDeploy_AlertsFireInTime(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	root := harness.Root(t)
	code, promtool, errOut := harness.Run(t, filepath.Join(root, "scripts", "install.sh"), "promtool")
	if code != 0 {
		t.Fatalf("scripts/install.sh promtool: %s", errOut)
	}
	if code, out, errOut := harness.Run(t, strings.TrimSpace(promtool), "test", "rules", filepath.Join(root, "deploy", "alerts.test.yaml")); code != 0 {
		t.Errorf("promtool ends with %d: %s%s", code, out, errOut)
	}
}
