package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMigration types what docs/migrate.md says, in its order, between a mesh
// and a ZooKeeper in this process.
func TestMigration(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	w := newWorld(t)
	do(t, "validate", w.file("shown.yaml", shown)).want(t, exitUsage, "if they are on another machine, set --skip-files")
	do(t, "validate", "--skip-files", w.file("shown.yaml", shown)).want(t, exitOK, "valid")

	w.publish(map[string]string{"providers:api.Orders:1.0:": orders, "providers:api.Greeter:1.0:": greeter})
	w.offer(greeter, "10.0.1.1", "10.0.1.2")
	file, next := filepath.Join(w.dir, "xds-bridge.yaml"), filepath.Join(w.dir, "next.yaml")
	wave := func(name, hosts string) {
		text := w.text(w.config(fileOptions{bridge: ", select: { include: [" + hosts + "] }, guard: { settle: 0s, lastEndpoint: 0s }"}))
		w.file(name, strings.Replace(text, "owner: shop", "owner: shop-migration", 1))
	}
	const first, second = "orders.shop.svc.cluster.local", "greeter.shop.svc.cluster.local"
	wave("xds-bridge.yaml", first)
	var r running
	steps := []struct {
		command string
		do      func() // before it, such as what the text around it says
		code    int
		says    string
	}{
		{"xds-bridge validate xds-bridge.yaml", nil, exitOK, "valid"},
		{"xds-bridge preflight -f xds-bridge.yaml", nil, exitOK, "√ write"},
		{"xds-bridge plan -f xds-bridge.yaml", nil, exitFindings, "2 to create, 0 to update, 0 to delete"},
		{"xds-bridge run -f xds-bridge.yaml", func() { r = w.start(file) }, exitOK, ""},
		{"xds-bridge status -f xds-bridge.yaml", nil, exitOK, "in sync"},
		{"xds-bridge why -f xds-bridge.yaml api.Orders", nil, exitOK, "reason    synced"},
		{"xds-bridge validate next.yaml", func() { wave("next.yaml", first+", "+second) }, exitOK, "valid"},
		{"xds-bridge plan -f next.yaml", nil, exitFindings, "2 to create, 0 to update, 0 to delete"},
		{"mv next.yaml xds-bridge.yaml", func() { _ = os.Rename(next, file) }, exitOK, ""},
		{"xds-bridge reload -f xds-bridge.yaml", nil, exitOK, "\n"}, // it may have seen the change by itself
		{"xds-bridge holds -f xds-bridge.yaml", func() {
			eventually(t, "both services are there", func() bool { return len(w.providers("api.Greeter")) == 2 })
			wave("xds-bridge.yaml", second)
			do(t, "reload", "-f", file).want(t, exitOK)
		}, exitHeld, "api.Orders"},
		{"xds-bridge approve -f xds-bridge.yaml --bridge mesh-to-zk", nil, exitHeld, "xds-bridge approve "},
		{"xds-bridge purge -f xds-bridge.yaml --owner shop-migration", func() { r.stop() }, exitOK, "10.0.1.2"},
		{"xds-bridge purge -f xds-bridge.yaml --owner shop-migration --yes", nil, exitOK, "deleted"},
	}
	typed := regexp.MustCompile(`(?m)^ {4,}((?:xds-bridge|mv) .*)$`).FindAllStringSubmatch(string(page), -1)
	if len(typed) != len(steps) {
		t.Fatalf("%d commands, want %d: %q", len(typed), len(steps), typed)
	}
	for i, s := range steps {
		if typed[i][1] != s.command {
			t.Fatalf("command %d is %s, want %s", i, typed[i][1], s.command)
		}
		if s.do != nil {
			s.do()
		}
		if s.says == "" {
			continue // it was done
		}
		args := strings.Fields(strings.NewReplacer("next.yaml", next, "xds-bridge.yaml", file).Replace(s.command))[1:]
		var got result
		eventually(t, s.command+" says "+s.says, func() bool {
			got = do(t, args...)
			return got.code == s.code && strings.Contains(got.out+got.err, s.says)
		})
	}
	if left := append(w.providers("api.Orders"), w.providers("api.Greeter")...); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}
