package kubernetes_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

const namespace = "xds-bridge"

func TestDirectory_Conformance(t *testing.T) {
	t.Parallel()
	conformance.Target(t, func(t *testing.T) conformance.Fixture {
		t.Helper()
		target := kubernetes.NewTarget(kubernetes.NewDirectory(t.TempDir()), kubernetes.Options{Owner: "me", Namespace: namespace})
		return conformance.ServiceEntries(target, "me", namespace)
	})
}

// TestDirectory_Try stores nothing, and says what keeps it from storing.
func TestDirectory_Try(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := kubernetes.NewDirectory(dir).Try(t.Context(), serviceentry.ObjectKind, namespace); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v are left, %v", files, err)
	}
	if err := kubernetes.NewDirectory(filepath.Join(dir, "nowhere")).Try(t.Context(), serviceentry.ObjectKind, namespace); err == nil {
		t.Error("nothing keeps it from a directory that is not there")
	}
}

// TestDirectory_KeepsWhatIsBesideAnObject: however YAML begins a second document, a file
// that has one is not deleted with the first.
func TestDirectory_KeepsWhatIsBesideAnObject(t *testing.T) {
	t.Parallel()
	const name = "a.example"
	first := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: { name: " + name + ", namespace: " + namespace + " }\nspec: { hosts: [" + name + "] }\n"
	path := filepath.Join(t.TempDir(), name+".yaml")
	store := kubernetes.NewDirectory(filepath.Dir(path))
	for _, between := range []string{"---\n", "--- # note\n", "---  \n", "---\t\n", "---\r\n", "--- ", "...\n", "...\n--- # note\n", "---\r"} {
		text := first + between + "{ kind: ConfigMap, metadata: { name: precious } }\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if o, err := store.Get(t.Context(), serviceentry.ObjectKind, namespace, name); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("behind %q: Get = %v, %v, want a refusal", between, o, err)
		}
		o := serviceentry.Object{Kind: serviceentry.ObjectKind, Metadata: serviceentry.ObjectMeta{Name: name, Namespace: namespace}}
		if err := store.Delete(t.Context(), o); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("behind %q: Delete = %v, want a refusal", between, err)
		}
		if now, _ := os.ReadFile(path); string(now) != text {
			t.Errorf("behind %q: the file is\n%s", between, now)
		}
	}
	for _, text := range []string{first, "---\n" + first, "--- # note\n" + first + "---\n", first + "...\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if o, err := store.Get(t.Context(), serviceentry.ObjectKind, namespace, name); err != nil || o == nil {
			t.Errorf("Get of one alone = %v, %v, of\n%s", o, err, text)
		}
	}
}
