package app

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestFileWatch_Changed shows how long after the last change a file is read again.
func TestFileWatch_Changed(t *testing.T) {
	t.Parallel()
	const within = 10 * time.Second
	for name, change := range map[string]func(t *testing.T, dir, file string){
		"written in place": func(t *testing.T, _, file string) {
			t.Helper()
			write(t, file, "new")
		},
		"half of it, and the rest a second later": func(t *testing.T, _, file string) {
			t.Helper()
			write(t, file, "n")
			time.Sleep(time.Second)
			write(t, file, "new")
		},
		"a link to another directory, as Kubernetes renews a ConfigMap": func(t *testing.T, dir, _ string) {
			t.Helper()
			next := filepath.Join(dir, "..2")
			if err := os.Mkdir(next, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(next, "config.yaml"), "new")
			link(t, "..2", filepath.Join(dir, "..data_tmp"))
			if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		},
		"taken away, and written again": func(t *testing.T, _, file string) {
			t.Helper()
			target, err := filepath.EvalSymlinks(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(target); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			write(t, target, "new")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := configMap(t, dir)
			synctest.Test(t, func(t *testing.T) {
				w := fileWatch{path: file}
				w.markRead()
				for offset := time.Duration(0); offset < within; offset += lookInterval(within) {
					time.Sleep(lookInterval(within))
					if w.changed() {
						t.Fatal("it has not changed, and is read again")
					}
				}
				begun := time.Now()
				change(t, dir, file)
				written := time.Now()
				for next := begun; ; {
					next = next.Add(lookInterval(within))
					time.Sleep(time.Until(next))
					if w.changed() {
						break
					}
					if time.Since(written) > within {
						t.Fatalf("not read %s after the change", time.Since(written))
					}
				}
				if text, err := os.ReadFile(file); err != nil || string(text) != "new" {
					t.Errorf("read %q, %v", text, err)
				}
				if took := time.Since(written); took > within*3/4 {
					t.Errorf("it takes %s, which leaves too little of %s for the reload", took, within)
				}
			})
		})
	}
}

// configMap returns the path of a file as Kubernetes mounts it: by two links.
func configMap(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "..1"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "..1", "config.yaml"), "old")
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, "..data/config.yaml", filepath.Join(dir, "config.yaml"))
	return filepath.Join(dir, "config.yaml")
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}
