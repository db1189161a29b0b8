package harness

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Kubeconfig returns a file by which a client with a token reaches the API.
func (k *Kubernetes) Kubeconfig(t testing.TB, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{ name: test, cluster: { server: %q, certificate-authority: %q } }]
users: [{ name: test, user: { token: %q } }]
contexts: [{ name: test, context: { cluster: test, user: test } }]
current-context: test
`, k.URL, k.CA, token), 0o600))
	return file
}

// Store stores an object as YAML at the path of its kind, instead of the one of
// its name, with its status where it has one.
func (k *Kubernetes) Store(t testing.TB, path, name, yaml string) {
	t.Helper()
	for _, at := range []string{path + "/" + name, path + "/" + name + "/status"} {
		status, answer := 0, ""
		Eventually(t, startTime, "the API accepts "+at, func() (err error) {
			status, answer, err = k.Request(t, http.MethodPatch, at+"?fieldManager=test&force=true", yaml, "application/apply-patch+yaml")
			return err
		})
		if status >= http.StatusMultipleChoices && (strings.Contains(yaml, "\nstatus:") || at == path+"/"+name) {
			t.Fatalf("%s: status %d: %s", at, status, answer)
		}
		if !strings.Contains(yaml, "\nstatus:") {
			return
		}
	}
}

// Drop deletes what lies at a path, at once.
func (k *Kubernetes) Drop(t testing.TB, at string) {
	t.Helper()
	k.Do(t, http.MethodDelete, at+"?gracePeriodSeconds=0", "")
}

// Grant lets an account do what RBAC calls by these verbs with resources of an API
// group in a namespace; empty: in all of them.
func (k *Kubernetes) Grant(t testing.TB, namespace, account, in, rule string) {
	t.Helper()
	kind, path := "ClusterRole", "/apis/rbac.authorization.k8s.io/v1/cluster"
	if in != "" {
		kind, path = "Role", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+in+"/"
	}
	k.Store(t, path+"roles", account, fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata: { name: %s }\nrules: %s\n", kind, account, rule))
	k.Store(t, path+"rolebindings", account, fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]sBinding
metadata: { name: %[2]s }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: %[2]s }
subjects: [{ kind: ServiceAccount, name: %[2]s, namespace: %[3]s }]
`, kind, account, namespace))
}
