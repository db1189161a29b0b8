package kubernetes_test

import (
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/xds-bridge/xds-bridge/registry"
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

// TestRights_Documented: the Role of the document allows what is asked
// for, and nothing else.
func TestRights_Documented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?kind: Role\n.*?)---").FindSubmatch(text)
	if found == nil {
		t.Fatal("the document has no Role, want one")
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

// TestAPI_Answers: what each answer to a write means.
func TestAPI_Answers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		code    int
		body    string
		refused string // what the refusal says; empty: it is none
		is      error
	}{
		"forbidden":         {code: http.StatusForbidden, body: statusOf(http.StatusForbidden, "Forbidden", ""), refused: "allow create and patch for serviceentries.networking.istio.io in namespace xds-bridge"},
		"a namespace ends":  {code: http.StatusForbidden, body: strings.Replace(statusOf(http.StatusForbidden, "Forbidden", ""), "a test", "it is being terminated", 1), refused: "is being deleted"},
		"over quota":        {code: http.StatusForbidden, body: strings.Replace(statusOf(http.StatusForbidden, "Forbidden", ""), "a test", "exceeded quota: q, requested: count/serviceentries.networking.istio.io=1", 1), refused: ": raise the ResourceQuota of namespace xds-bridge"},
		"by a webhook":      {code: http.StatusForbidden, body: strings.Replace(statusOf(http.StatusForbidden, "Forbidden", ""), "a test", `admission webhook \"x\" denied the request: no`, 1), refused: ": change the admission webhook or policy that denies it"},
		"by a policy":       {code: http.StatusForbidden, body: strings.Replace(statusOf(http.StatusForbidden, "Forbidden", ""), "a test", "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no", 1), refused: ": change the admission webhook or policy that denies it"},
		"unauthorized":      {code: http.StatusUnauthorized, body: statusOf(http.StatusUnauthorized, "Unauthorized", ""), refused: "check kubeconfig"},
		"no definition":     {code: http.StatusNotFound, body: statusOf(http.StatusNotFound, "NotFound", ""), refused: "install istio's custom resource definitions"},
		"no namespace":      {code: http.StatusNotFound, body: strings.Replace(statusOf(http.StatusNotFound, "NotFound", ""), "a test", `namespaces \"x\" not found`, 1), refused: "create namespace xds-bridge"},
		"invalid":           {code: http.StatusUnprocessableEntity, body: statusOf(http.StatusUnprocessableEntity, "Invalid", ""), refused: "a test"},
		"too large":         {code: http.StatusRequestEntityTooLarge, body: statusOf(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", ""), refused: "a test"},
		"there meanwhile":   {code: http.StatusUnprocessableEntity, body: statusOf(http.StatusUnprocessableEntity, "Invalid", `{"field":"metadata.resourceVersion"}`), is: registry.ErrConflict},
		"changed meanwhile": {code: http.StatusConflict, body: statusOf(http.StatusConflict, "Conflict", ""), is: registry.ErrConflict},
		"fields of another": {code: http.StatusConflict, body: statusOf(http.StatusConflict, "Conflict", managersCause), is: registry.ErrConflict}, // as it is new to us
		"an error":          {code: http.StatusInternalServerError, body: statusOf(http.StatusInternalServerError, "InternalError", "")},
		"another object":    {code: http.StatusOK, body: `{"kind":"Pod","apiVersion":"v1"}`},
	} {
		w := newAPIWorld(t)
		want := encode(t, subsetCodec(t, ""), service("greeter", 2))
		c := registry.Change{Group: want[0].Group, Want: want}
		for _, e := range want {
			c.Put = append(c.Put, registry.Write{New: e})
		}
		w.with(tt.code, tt.body, isApply, always)
		err := w.target.Write(t.Context(), c)
		switch {
		case tt.refused != "" && (!errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), tt.refused)):
			t.Errorf("%s: %v, want a refusal that says %q", name, err, tt.refused)
		case err != nil && strings.Count(err.Error(), registry.ErrRefused.Error()+": ") > 1:
			t.Errorf("%s: Write = %v, want one refusal", name, err)
		case tt.is != nil && !errors.Is(err, tt.is):
			t.Errorf("%s: %v, want %v", name, err, tt.is)
		case tt.refused == "" && (err == nil || errors.Is(err, registry.ErrRefused)):
			t.Errorf("%s: %v, want an error other than a refusal", name, err)
		}
	}
}
