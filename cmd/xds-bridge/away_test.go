package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/admin"
)

// Nothing is to be done, and the registry goes.
func TestStatus_LostIdleZooKeeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	r := w.start(file)
	const up = `xdsbridge_registry_up{direction="target",kind="zookeeper",registry="zk"} `
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

// No health that is reported is no doubt.
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
