package kubernetes_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// TestRights_WithRules: what is asked for with subsets is the same of a second kind.
func TestRights_WithRules(t *testing.T) {
	t.Parallel()
	const verbs = "list, get, watch, create, patch, delete "
	want := verbs + "serviceentries.networking.istio.io; " + verbs + "destinationrules.networking.istio.io"
	if got := kubernetes.Listed(kubernetes.Rights(kubernetes.Options{Namespace: namespace, Rules: true})); got != want {
		t.Errorf("asked for are %s, want %s", got, want)
	}
}

// TestRights_AreThoseOfTheDocument: the Role of the document allows what is asked
// for, and nothing else.
func TestRights_AreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?kind: Role\n.*?)---").FindSubmatch(text)
	if found == nil {
		t.Fatal("the document has no Role")
	}
	var role struct {
		Metadata struct{ Namespace string }
		Rules    []struct{ APIGroups, Resources, Verbs []string }
	}
	if err := yaml.Unmarshal(found[1], &role); err != nil {
		t.Fatal(err)
	}
	var allowed []kubernetes.Right
	for _, r := range role.Rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					allowed = append(allowed, kubernetes.Right{Group: group, Resource: resource, Verb: verb, Namespace: role.Metadata.Namespace})
				}
			}
		}
	}
	o := kubernetes.Options{Namespace: namespace}
	if want := slices.Concat(kubernetes.Rights(o), kubernetes.RecordRights(o)); !slices.Equal(allowed, want) {
		t.Errorf("the document allows\n%v\nand these are asked for\n%v", allowed, want)
	}
}
