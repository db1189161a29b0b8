package kubernetesapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// What deploy/kubernetes-import.yaml and deploy/kubernetes.yaml name.
const (
	shipped        = "xds-bridge"
	shippedAccount = "xds-bridge"
	accountsIn     = "istio-system"
	shippedRole    = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + shipped + "/roles/xds-bridge-import"
	shippedBinding = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + shipped + "/rolebindings/xds-bridge-import"
)

// testRights shows that the Role of deploy/kubernetes-import.yaml is what the target
// uses: all of it, and no more.
func testRights(t *testing.T, c *cluster) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(t), "deploy", "kubernetes-import.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	for i, path := range []string{"/api/v1/namespaces/" + shipped, shippedRole, shippedBinding} {
		if status, answer := c.Apply(t, path, documents[i]); status >= http.StatusMultipleChoices {
			t.Fatalf("%s: status %d: %s", path, status, answer)
		}
	}
	c.Namespace(t, accountsIn)
	c.ServiceAccount(t, accountsIn, shippedAccount)
	w := c.as(t, shipped, c.config(c.Token(t, accountsIn, shippedAccount)))
	group := w.encode(t, service("greeter", 2))[0].Group
	harness.Eventually(t, soon, "the Role counts", func() error {
		_, err := w.target.Groups(t.Context())
		return err
	})
	calls := map[string]func() error{ // by the verb that each uses
		"list": func() error { _, err := w.target.Groups(t.Context()); return err },
		"get": func() error {
			_, err := w.target.Read(t.Context(), registry.Group{Kind: serviceentry.Kind, Namespace: shipped, Name: "unlisted.zk.bridge.internal"})
			return err
		},
		"create": func() error { return w.api.Try(t.Context(), serviceentry.ObjectKind, shipped) },
		"patch":  func() error { return w.api.Try(t.Context(), serviceentry.ObjectKind, shipped) },
		"delete": func() error { return w.api.Delete(t.Context(), w.object(t, group.Name)) },
		"watch":  func() error { return w.watchOnce(t) },
	}
	exercise := func() {
		w.write(t, service("greeter", 2))
		w.edit(t, group.Name, func(o *serviceentry.Object) { o.Spec.Ports[0].Number++ })
		w.write(t, service("greeter", 3))
		for verb, call := range calls {
			if err := call(); err != nil {
				t.Errorf("with the Role as it is, what uses %s: %v", verb, err)
			}
		}
		for _, text := range []string{"a", "b", ""} {
			if err := w.target.Record(t.Context(), "guard", map[string]string{"test": text}); err != nil {
				t.Errorf("with the Role as it is, a record: %v", err)
			}
			if all, err := w.target.Records(t.Context(), "guard"); err != nil || all["test"] != text {
				t.Errorf("with the Role as it is, the records are %v, %v", all, err)
			}
		}
	}
	exercise()
	w.write(t, service("greeter", 2))
	testSubsetRights(t, w)
	for verb, call := range calls {
		role := strings.Replace(strings.Replace(documents[1], verb+", ", "", 1), ", "+verb, "", 1)
		if role == documents[1] {
			t.Fatalf("the Role does not allow %s", verb)
		}
		if status, answer := c.Apply(t, shippedRole, role); status >= http.StatusMultipleChoices {
			t.Fatalf("the Role without %s: status %d: %s", verb, status, answer)
		}
		harness.Eventually(t, soon, "the error says that "+verb+" is not allowed", func() error {
			err := call()
			if err == nil || !strings.Contains(err.Error(), "cannot "+verb+` resource "serviceentries"`) || !strings.Contains(err.Error(), "in namespace "+shipped) {
				return fmt.Errorf("without %s: %w", verb, err)
			}
			refusedWith(t, err)
			return nil
		})
		c.Apply(t, shippedRole, documents[1])
		harness.Eventually(t, soon, verb+" is allowed again", call)
		w.write(t, service("greeter", 2))
	}
	for _, verb := range []string{"update", "deletecollection"} {
		if w.may(t, verb, "networking.istio.io", "serviceentries", shipped) {
			t.Errorf("it may %s", verb)
		}
	}
	for _, verb := range []string{"list", "watch", "update", "delete"} {
		if w.may(t, verb, "", "configmaps", shipped) {
			t.Errorf("it may %s ConfigMaps", verb)
		}
	}
	if w.may(t, "get", "networking.istio.io", "serviceentries", "default") || w.may(t, "get", "", "secrets", shipped) {
		t.Error("it may do more than it uses")
	}
}

// testSubsetRights shows that subsets need the Role of deploy/kubernetes-import-subsets.yaml.
func testSubsetRights(t *testing.T, w *world) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(t), "deploy", "kubernetes-import-subsets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.withRules(t)
	want := w.encodeWith(t, service("divided", 2), "version")
	err = w.bring(t.Context(), want[0].Group, want...)
	if refused, ok := errors.AsType[registry.Refused](err); !ok || len(refused) != 1 || !strings.Contains(fmt.Sprint(refused[serviceentry.SubsetsKey]), "allow get for destinationrules.networking.istio.io in namespace "+shipped) {
		t.Errorf("without the Role for subsets: %v, want a refusal of them alone", err)
	}
	documents := strings.Split(string(text), "\n---\n")
	for i, path := range []string{shippedRole + "-subsets", shippedBinding + "-subsets"} {
		if status, answer := w.Apply(t, path, documents[i]); status >= http.StatusMultipleChoices {
			t.Fatalf("%s: status %d: %s", path, status, answer)
		}
	}
	harness.Eventually(t, soon, "the Role counts", func() error {
		return w.bring(t.Context(), want[0].Group, want...)
	})
	for _, want := range [][]registry.Entry{want, nil} {
		if err := w.bring(t.Context(), w.encode(t, service("divided", 0))[0].Group, want...); err != nil {
			t.Errorf("with both Roles: %v", err)
		}
	}
	if err := w.watchOnce(t); err != nil {
		t.Errorf("with both Roles: watch: %v", err)
	}
	w.target = kubernetes.NewWatchedTarget(w.api, options(w.namespace))
}

func (w *world) may(t *testing.T, verb, group, resource, namespace string) bool {
	t.Helper()
	return strings.Contains(w.Do(t, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", fmt.Sprintf(
		`{"spec":{"user":"system:serviceaccount:%s:%s","resourceAttributes":{"namespace":%q,"verb":%q,"group":%q,"resource":%q}}}`,
		accountsIn, shippedAccount, namespace, verb, group, resource)), `"allowed":true`)
}

// watchOnce begins to watch, and returns why it cannot.
func (w *world) watchOnce(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.run(t, ctx)
	harness.Eventually(t, soon, "the watch begins or fails", func() error {
		if w.target.WatchState().At.IsZero() {
			return errors.New("no answer yet")
		}
		return nil
	})
	return w.target.WatchState().Err
}
