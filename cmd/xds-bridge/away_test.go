package main

import (
	"strings"
	"testing"
)

// V18: nothing is to be done, and the registry goes.
func TestAnIdleZooKeeperThatGoesIsTold(t *testing.T) {
	w := newWorld(t)
	file := w.config(fileOptions{})
	r := w.start(file)
	const up = `xdsbridge_peer_up{direction="target",kind="zookeeper",peer="zk"} `
	eventually(t, "in step", func() bool {
		d := statusOf(t, file)
		return d.Ready && d.InSync
	})
	do(t, "status", "-f", file).want(t, exitOK, "in step", "connected to "+w.zkAt)
	if _, body := r.probe(t, "/metrics"); !strings.Contains(body, up+"1") {
		t.Errorf("no %s1", up)
	}

	_ = w.zk.Close()
	eventually(t, "not in step", func() bool { return !statusOf(t, file).InSync })
	status := do(t, "status", "-f", file)
	status.want(t, exitFindings, "not in step")
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
