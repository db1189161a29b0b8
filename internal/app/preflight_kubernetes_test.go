package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	fake "github.com/xds-bridge/xds-bridge/internal/fake/kubernetes"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
)

// An apiServer answers what preflight asks an API server.
type apiServer struct {
	denied []string // verbs
	list   int      // the status of a list; 0: it is answered
}

func (a apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Verb, Namespace, Resource string }
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&review)
		of := review.Spec.ResourceAttributes
		allowed := of.Namespace == "xds-bridge" && slices.Contains([]string{"serviceentries", "configmaps"}, of.Resource) && !slices.Contains(a.denied, of.Verb)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","status":{"allowed":%v}}`, allowed)
	case r.Method == http.MethodGet && a.list != 0:
		w.WriteHeader(a.list)
		_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"details":{"group":"networking.istio.io","kind":"serviceentries"}}`,
			a.list, map[int]string{http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden"}[a.list])
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntryList","metadata":{},"items":[]}`)
	default:
		_, _ = io.Copy(w, r.Body)
	}
}

// kubeconfig returns the file by which to connect to a server.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(fake.Kubeconfig(url)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPreflight_Kubernetes: what of the path into a mesh is missing, and which other
// paths there are.
func TestPreflight_Kubernetes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		server    apiServer
		directory bool   // write into one
		broken    bool   // which has a file that cannot be read
		imports   string // further settings of import
		down      bool
		want      []string // the outcome and the text of findings
	}{
		"all is there": {want: []string{
			"ok rights: list, get, watch, create, patch, delete serviceentries.networking.istio.io in namespace xds-bridge", "ok list: 0 ServiceEntries in namespace xds-bridge", "ok write: a write was tried",
			"info alternative: istiod reads the bridge: istiod is not at",
		}},
		"rights that lack": {server: apiServer{denied: []string{"patch", "delete"}}, want: []string{
			"failed rights: the bridge is not allowed to patch, delete serviceentries.networking.istio.io in namespace xds-bridge",
			"warning records: a restart will forget losses and decisions: the bridge is not allowed to patch configmaps in namespace xds-bridge",
		}},
		"no right to subsets": {imports: "subsetLabel: version", want: []string{
			"failed rights: the bridge is not allowed to list, get, watch, create, patch, delete destinationrules.networking.istio.io in namespace xds-bridge" +
				" (apply deploy/kubernetes-import.yaml and deploy/kubernetes-import-subsets.yaml for the bridge's account)",
		}},
		"no right in another namespace": {imports: "namespace: shop", want: []string{
			"failed rights: the bridge is not allowed to list, get, watch, create, patch, delete serviceentries.networking.istio.io in namespace shop" +
				" (apply deploy/kubernetes-import.yaml, with namespace shop instead of xds-bridge, for the bridge's account)",
		}},
		"no right to list": {server: apiServer{denied: []string{"list"}, list: http.StatusForbidden}, want: []string{
			"failed rights: the bridge is not allowed to list serviceentries.networking.istio.io", "failed list: ",
		}},
		"no definition of ServiceEntries": {server: apiServer{list: http.StatusNotFound}, want: []string{
			"failed list: refused: install istio's custom resource definitions",
		}},
		"nobody there": {down: true, want: []string{"failed reachable: "}},
		"a directory beside an API that would do": {directory: true, want: []string{
			"ok list: 0 ServiceEntries", "ok write: a write was tried", "info alternative: ServiceEntries by the Kubernetes API: works at http://127.0.0.1", ": leave import.directory out",
		}},
		"a directory with a broken file": {directory: true, broken: true, want: []string{
			"ok list: 0 ServiceEntries", "warning list: 1 cannot be read, such as broken.yaml (repair or delete them", "ok write: a write was tried",
		}},
		"a directory beside an API that would not": {directory: true, server: apiServer{denied: []string{"create"}}, want: []string{
			"info alternative: ServiceEntries by the Kubernetes API: not yet: at http://127.0.0.1", "the bridge is not allowed to create serviceentries.networking.istio.io; create configmaps",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tt.server)
			defer server.Close()
			imports := fmt.Sprintf("import: { %s }", tt.imports)
			if tt.directory {
				dir := t.TempDir()
				imports = fmt.Sprintf("import: { directory: %q }", dir)
				if tt.broken {
					if err := os.WriteFile(filepath.Join(dir, "broken.yaml"), []byte("{"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			config := kubeconfig(t, server.URL)
			if tt.down {
				server.Close()
			}
			file := filepath.Join(t.TempDir(), "config.yaml")
			text := fmt.Sprintf(`owner: shop
registries:
  mesh: { kubernetes: { kubeconfig: %q, %s } }
  zk: { zookeeper: { servers: [%q] } }
bridges: [{ name: b, from: zk, to: mesh, formats: [plain] }]
`, config, imports, newEnsembles(t).address[0])
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			all, err := (&Program{File: file, Env: noEnv, LogOutput: io.Discard}).Preflight(t.Context(), 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range all {
				if f.Registry == "mesh" {
					got = append(got, string(f.Outcome)+" "+f.Check+": "+f.Detail+" ("+f.Fix+")")
				}
				if f.Outcome == preflight.Info && f.Unreachable {
					t.Errorf("%v counts as a registry that is away", f)
				}
			}
			for _, want := range tt.want {
				if !strings.Contains(strings.Join(got, "\n"), want) {
					t.Errorf("found\n%s\nwant %q", strings.Join(got, "\n"), want)
				}
			}
		})
	}
}
