package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/fake/kubernetes"
)

// Nothing is to be done, and the registry goes.
func TestStatus_LostIdleZooKeeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	r := w.start(file)
	const up = `xdsbridge_registry_up{direction="target",kind="zookeeper",listen="",registry="zk"} `
	eventually(t, "in sync", func() bool {
		d := statusOf(t, file)
		return d.Ready && d.InSync
	})
	do(t, "status", "-f", file).want(t, exitOK, "in sync", "connected to "+w.zkAt)
	if _, body := r.probe(t, "/metrics"); !strings.Contains(body, up+"1") {
		t.Errorf("no %s1", up)
	}

	_ = w.zk.Close()
	eventually(t, "not in sync", func() bool { return !statusOf(t, file).InSync })
	status := do(t, "status", "-f", file)
	status.want(t, exitFindings, "not in sync")
	if strings.Contains(status.out, "connected to ") {
		t.Errorf("status says that it is connected:\n%s", status.out)
	}
	if _, body := r.probe(t, "/metrics"); !strings.Contains(body, up+"0") {
		t.Errorf("no %s0", up)
	}
	if code, body := r.probe(t, "/livez"); code != 200 {
		t.Errorf("/livez: %d %s", code, body)
	}
}

// A mapping in which nothing changes does not grow older while it is read.
func TestStatus_MappingAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	isInSync(t, file)
	read := func() time.Time { return statusOf(t, file).Sources[0].Mapping.LastRead }
	first := read()
	eventually(t, "it is as new as its last reading", func() bool { return read().After(first.Add(200 * time.Millisecond)) })
	refused := time.Now()
	w.refuse(http.StatusForbidden)
	eventually(t, "the source says that it is not read", func() bool { return statusOf(t, file).Sources[0].Mapping.LastError != "" })
	if last := read(); last.After(refused) {
		t.Errorf("it was read at %s, and refused since %s", last, refused)
	}
}

// An endpoint without a reported health is not in doubt.
func TestWhy_EndpointStates(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]admin.Endpoint{
		"offered":               {Health: "unknown", Offered: true},
		"healthy":               {Health: "healthy", Offered: true},
		"draining, not offered": {Health: "draining"},
	} {
		if said := healthText(e); said != want {
			t.Errorf("%+v: %q, want %q", e, said, want)
		}
	}
}

// Whoever switches the guard off is on record, and so is what was refused.
func TestReload_Audit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trail := filepath.Join(w.dir, "audit.ndjson")
	file := w.config(fileOptions{file: "audit: { file: " + trail + " }\n"})
	r := w.start(file)
	isInSync(t, file)
	w.config(fileOptions{bridge: ", guard: { mode: off }", file: "audit: { file: " + trail + " }\n"})
	do(t, "reload", "-f", file).want(t, exitOK, "guard.mode of bridge mesh-to-zk: off, before enforce")
	w.config(fileOptions{bridge: ", nonsense: 1"})
	do(t, "reload", "--admin", "unix:"+w.dir+"/a").want(t, exitUsage)
	text, err := os.ReadFile(trail)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"who":"reload by request","action":"reload"`, "guard.mode of bridge mesh-to-zk: off, before enforce", "nonsense"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if !strings.Contains(r.log.String(), "xds-bridge validate shows its errors, xds-bridge reload applies it") {
		t.Error("the log names no remedy")
	}
}

// A bridge that only imports shows of each registry that it reads whether that is up.
func TestMetrics_SourcesUp(t *testing.T) {
	t.Parallel()
	w := newNacosWorld(t, "")
	cluster := httptest.NewServer(kubernetes.NewServer())
	t.Cleanup(cluster.Close)
	file := w.file("config.yaml", fmt.Sprintf(`owner: shop
registries:
  zk: { zookeeper: { servers: [%q], timeout: 2s } }
  nacos: { nacos: { servers: [%q] } }
  k8s: { kubernetes: { kubeconfig: %q, source: {} } }
  mesh: { kubernetes: { import: { directory: %q } } }
bridges:
  - { name: from-zk, from: zk, to: mesh, formats: [dubbo-interface] }
  - { name: from-nacos, from: nacos, to: mesh, formats: [dubbo-interface] }
  - { name: from-k8s, from: k8s, to: zk, formats: [dubbo-interface] }
admin: { address: "unix:%s/a" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json }
`, w.zkAt, w.at, w.file("kubeconfig", kubernetes.Kubeconfig(cluster.URL)), t.TempDir(), w.dir))
	r := w.start(file)
	up := func(kind, registry string, value int) bool {
		_, text := r.probe(t, "/metrics")
		return strings.Contains(text, fmt.Sprintf(`xdsbridge_registry_up{direction="source",kind=%q,listen="",registry=%q} %d`, kind, registry, value))
	}
	sources := map[string]string{"zk": "zookeeper", "nacos": "nacos", "k8s": "kubernetes"}
	for registry, kind := range sources {
		eventually(t, registry+" is up", func() bool { return up(kind, registry, 1) })
	}
	_ = w.zk.Close()
	w.nacos.Close()
	cluster.CloseClientConnections()
	cluster.Close()
	for registry, kind := range sources {
		eventually(t, registry+" is down", func() bool { return up(kind, registry, 0) })
	}
	_, text := r.probe(t, "/metrics")
	for registry := range sources {
		if !strings.Contains(text, fmt.Sprintf(`listen="",registry=%q} 1.`, registry)) {
			t.Errorf("%s has no last contact", registry)
		}
	}
}
