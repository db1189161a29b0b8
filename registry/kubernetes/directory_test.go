package kubernetes_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
		t.Errorf("files %v, %v, want none", files, err)
	}
	if err := kubernetes.NewDirectory(filepath.Join(dir, "nowhere")).Try(t.Context(), serviceentry.ObjectKind, namespace); err == nil {
		t.Error("Try() = nil in a directory that does not exist, want an error")
	}
}

// TestDirectory_KeepsOtherDocuments: however YAML begins a second document, a file
// that has one is not deleted with the first.
func TestDirectory_KeepsOtherDocuments(t *testing.T) {
	t.Parallel()
	const name = "a.example"
	first := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: { name: " + name + ", namespace: " + namespace + " }\nspec: { hosts: [" + name + "] }\n"
	path := filepath.Join(t.TempDir(), name+".yaml")
	store := kubernetes.NewDirectory(filepath.Dir(path))
	for _, between := range []string{"---\n", "--- # comment\n", "---  \n", "---\t\n", "---\r\n", "--- ", "...\n", "...\n--- # comment\n", "---\r"} {
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
			t.Errorf("the file behind %q is\n%s\nwant\n%s", between, now, text)
		}
	}
	for _, text := range []string{first, "---\n" + first, "--- # comment\n" + first + "---\n", first + "...\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if o, err := store.Get(t.Context(), serviceentry.ObjectKind, namespace, name); err != nil || o == nil {
			t.Errorf("Get() of one document = %v, %v, want it, of\n%s", o, err, text)
		}
	}
}

// TestDirectory_UnreadableFile: a file of others that cannot be read is left out and
// named, and the others are read.
func TestDirectory_UnreadableFile(t *testing.T) {
	t.Parallel()
	for what, create := range map[string]func(at string) error{
		"a link to itself":         func(at string) error { return os.Symlink(filepath.Base(at), at) },
		"a link into a file":       func(at string) error { return os.Symlink("ours.yaml/x", at) },
		"a link with a long name":  func(at string) error { return os.Symlink(strings.Repeat("x", 300), at) },
		"a link to a directory":    func(at string) error { return os.Symlink(".", at) },
		"a directory":              func(at string) error { return os.Mkdir(at, 0o700) },
		"a file without an object": func(at string) error { return os.WriteFile(at, []byte("{ kind: ServiceEntry, spec: 1 }"), 0o600) },
		"a pipe":                   func(at string) error { return syscall.Mkfifo(at, 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			dir := t.TempDir()
			target := kubernetes.NewTarget(kubernetes.NewDirectory(dir), kubernetes.Options{
				Owner: "me", Namespace: namespace, Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			want := encode(t, codec(t, "me", netip.Prefix{}), service("greeter", 1))
			if err := os.WriteFile(filepath.Join(dir, "ours.yaml"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := create(filepath.Join(dir, "foreign.yaml")); err != nil {
				t.Fatal(err)
			}
			if err := bring(t.Context(), target, "me", want[0].Group, want); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				groups, err := target.Groups(t.Context())
				if err != nil || !slices.Equal(groups, []registry.Group{want[0].Group}) {
					t.Errorf("Groups() = %v, %v, want that of our object", groups, err)
				}
			}
			if said := log.String(); what != "a directory" && strings.Count(said, "foreign.yaml") != 1 {
				t.Errorf("logged %q, want the name once", said)
			}
			if err := os.Remove(filepath.Join(dir, "foreign.yaml")); err != nil {
				t.Fatal(err)
			}
			if _, err := target.Groups(t.Context()); err != nil {
				t.Error(err)
			}
			if said := log.String(); what != "a directory" && !strings.Contains(said, "can be read again") {
				t.Errorf("logged %q, want the end", said)
			}
		})
	}
}

// TestDirectory_Away: the content of a missing directory is unknown, not empty.
func TestDirectory_Away(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mount")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	target := kubernetes.NewTarget(kubernetes.NewDirectory(dir), kubernetes.Options{Owner: "me", Namespace: namespace})
	want := encode(t, codec(t, "me", netip.Prefix{}), service("greeter", 1))
	group := want[0].Group
	if err := errors.Join(bring(t.Context(), target, "me", group, want), target.Record(t.Context(), "guard", map[string]string{"a": "x"})); err != nil {
		t.Fatal(err)
	}
	held, err := target.Read(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if held, err := target.Read(t.Context(), group); err == nil || errors.Is(err, registry.ErrRefused) {
		t.Errorf("Read = %v, %v, want an error", held, err)
	}
	for what, c := range map[string]registry.Change{"deletion": {Group: group, Delete: held}, "change": {Group: group, Want: want, Put: []registry.Write{{New: want[0]}, {New: want[1]}}}} {
		if err := target.Write(t.Context(), c); err == nil || errors.Is(err, registry.ErrRefused) || errors.Is(err, registry.ErrConflict) {
			t.Errorf("Write of a %s = %v, want an error that neither refuses nor conflicts", what, err)
		}
	}
	if all, err := target.Records(t.Context(), "guard"); err == nil || all != nil {
		t.Errorf("Records = %v, %v, want an error", all, err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if got := entriesOf(t, target, group); !slices.Equal(got, want) {
		t.Errorf("once it is back it holds %v, want %v", got, want)
	}
}
