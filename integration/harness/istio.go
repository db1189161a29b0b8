package harness

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// InstallIstio makes istio's custom resource definitions known to the API server,
// as those of the module istio.io/api, and waits until it serves ServiceEntries.
func (k *Kubernetes) InstallIstio(t testing.TB) {
	t.Helper()
	code, dir, errOut := Run(t, "go", "-C", filepath.Join(Root(t), "integration"), "list", "-m", "-f", "{{.Dir}}", "istio.io/api")
	if code != 0 {
		t.Fatalf("where istio.io/api is: %s", errOut)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(dir), "kubernetes", "customresourcedefinitions.gen.yaml"))
	must(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "kind: CustomResourceDefinition") {
			continue
		}
		status, answer, err := k.Request(t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document, "application/yaml")
		must(t, err)
		if status >= http.StatusMultipleChoices && status != http.StatusConflict {
			t.Fatalf("a custom resource definition: status %d: %s", status, answer)
		}
	}
	Eventually(t, startTime, "the API server serves ServiceEntries", func() error {
		status, answer, err := k.Request(t, http.MethodGet, "/apis/networking.istio.io/v1/serviceentries", "", "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, answer)
		}
		return err
	})
}
