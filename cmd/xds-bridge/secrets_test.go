package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// TestRun_ProviderSecrets: what providers register with a
// password or a token in it is carried on as it is, and nobody is shown it:
// neither by a command, nor in the log, nor in the audit.
func TestRun_ProviderSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	far := zkfake.New(zkfake.Options{})
	farAt, err := far.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	const secret = "s3cret"
	for _, u := range []string{
		"dubbo://10.0.0.1:20880/api.Orders?anyhost=true&interface=api.Orders&side=provider&token=" + secret + "&db.password=" + secret,
		"dubbo://10.0.0.2:nine/api.Orders?interface=api.Orders&side=provider&token=" + secret,
		"dubbo://ann:" + secret + "@10.0.0.3:99999/api.Orders?interface=api.Orders",
	} {
		if err := w.zk.Put("/dubbo/api.Orders/providers/"+url.QueryEscape(u), nil); err != nil {
			t.Fatal(err)
		}
	}
	audit := filepath.Join(w.dir, "audit.ndjson")
	file := w.file("two.yaml", fmt.Sprintf(`owner: shop
registries:
  near: { zookeeper: { servers: [%q] }, timing: { debounce: 1ms } }
  far: { zookeeper: { servers: [%q] }, timing: { debounce: 1ms } }
bridges:
  - { name: onward, from: near, to: far, formats: [dubbo-interface] %s }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
audit: { file: %s }
log: { format: json, level: debug }
`, w.zkAt, farAt, quick, w.dir, audit))

	var shown strings.Builder
	look := func(command ...string) {
		for _, form := range []string{"text", "json"} {
			r := do(t, append(command, "-f", file, "-o", form)...)
			if r.code == exitUsage || r.code == exitUnreachable {
				t.Fatalf("%s: %s", command, r.err)
			}
			shown.WriteString(r.out + r.err)
		}
	}
	look("plan")
	r := w.start(file)
	eventually(t, "it is carried on as it is", func() bool {
		names := far.Children("/dubbo/api.Orders/providers")
		return len(names) == 1 && strings.Contains(names[0], "token%3D"+secret+"%26") && strings.Contains(names[0], "db.password%3D"+secret)
	})
	for _, command := range [][]string{{"status"}, {"why", "api.Orders"}, {"events"}, {"holds"}} {
		look(command...)
	}
	_, verbose := r.probe(t, "/readyz?verbose")
	r.stop()
	look("purge", "--owner", "shop")
	look("purge", "--owner", "shop", "--yes")
	kept, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"what commands print": shown.String(), "the log": r.log.String(), "the audit": string(kept), "probes": verbose} {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows it: %s", where, text)
		}
	}
	if n := strings.Count(shown.String()+string(kept), "<redacted>"); n < 6 {
		t.Errorf("only %d were redacted:\n%s\n%s", n, shown.String(), kept)
	}
}
