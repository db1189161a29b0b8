package kind

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// TestKubernetesSource_Rights: the role that is shipped and that of the document allow
// what is read, and nothing else.
func TestKubernetesSource_Rights(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file  string
		role  *regexp.Regexp
		nodes bool
	}{
		"the manifest": {"../../deploy/kubernetes-source.yaml", regexp.MustCompile("(?s)(apiVersion: rbac.*?kind: ClusterRole\n.*?)---"), true},
		"the document": {"../../docs/kubernetes-source.md", regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?kind: Role\n.*?)---"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(tt.file)
			if err != nil {
				t.Fatal(err)
			}
			found := tt.role.FindSubmatch(text)
			if found == nil {
				t.Fatal("there is no role")
			}
			if !bytes.Contains(text[len(found[0]):], []byte("name: xds-bridge, namespace: istio-system")) {
				t.Error("it is not bound to the account of deploy/kubernetes.yaml")
			}
			var role struct {
				Rules []struct{ APIGroups, Resources, Verbs []string }
			}
			if err := yaml.Unmarshal(found[1], &role); err != nil {
				t.Fatal(err)
			}
			var allowed []string
			for _, r := range role.Rules {
				if !slices.Equal(r.Verbs, []string{"get", "list", "watch"}) {
					t.Errorf("verbs of %v = %v, want get, list and watch", r.Resources, r.Verbs)
				}
				for _, resource := range r.Resources {
					if group := r.APIGroups[0]; group != "" {
						resource += "." + group
					}
					allowed = append(allowed, resource)
				}
			}
			reader, err := kube.New(kube.Options{
				Rules:  kube.Rules{Pods: true, Decoder: mesh.NewDecoder(nil, mesh.AcceptMutualTLS)},
				Config: &rest.Config{}, Nodes: tt.nodes, Istio: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			var read []string
			for _, f := range reader.Status() {
				read = append(read, f.Resource)
			}
			slices.Sort(allowed)
			slices.Sort(read)
			if !slices.Equal(allowed, read) {
				t.Errorf("the role allows\n%v\nwant\n%v", allowed, read)
			}
		})
	}
}

// TestRestConfig_NoCluster: nobody is sent to a variable that is not read.
func TestRestConfig_NoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := restConfig("", "")
	if want := "kubernetes.kubeconfig: no cluster is set; set a kubeconfig file, set KUBECONFIG, or run in a pod"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}
