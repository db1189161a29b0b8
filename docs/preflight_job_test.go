package docs_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// pod is what a preflight has to share with the bridge that it stands for.
type pod struct {
	ServiceAccountName           string         `yaml:"serviceAccountName"`
	AutomountServiceAccountToken bool           `yaml:"automountServiceAccountToken"`
	SecurityContext              map[string]any `yaml:"securityContext"`
	Volumes                      []any
	Containers                   []struct {
		Image           string
		Args            []string
		Env             []map[string]any
		SecurityContext map[string]any   `yaml:"securityContext"`
		VolumeMounts    []map[string]any `yaml:"volumeMounts"`
	}
}

// podOf returns the pod of the object of a kind in a manifest.
func podOf(t *testing.T, path, kind string) pod {
	t.Helper()
	for text := range strings.SplitSeq(read(t, path), "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Namespace string }
			Spec     struct{ Template struct{ Spec pod } }
		}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == kind && o.Metadata.Namespace == "istio-system" {
			return o.Spec.Template.Spec
		}
	}
	t.Fatalf("%s has no %s in istio-system", path, kind)
	return pod{}
}

// TestPreflightJob: the Job tries what the bridge of the manifest has, as it has it.
func TestPreflightJob(t *testing.T) {
	job, bridge := podOf(t, "../deploy/preflight-job.yaml", "Job"), podOf(t, "../deploy/kubernetes.yaml", "Deployment")
	args, want := job.Containers[0].Args, bridge.Containers[0].Args
	if args[0] != "preflight" || want[0] != "run" || !reflect.DeepEqual(args[1:], want[1:]) {
		t.Errorf("the Job runs %v, the bridge %v", args, want)
	}
	for _, p := range []*pod{&job, &bridge} {
		p.Containers[0].Args = nil
		p.Containers[0].Env = p.Containers[0].Env[:2] // and not how much memory it may use
	}
	if !reflect.DeepEqual(job, bridge) {
		t.Errorf("the pod of the Job is\n%+v\nand that of the bridge\n%+v", job, bridge)
	}
}
