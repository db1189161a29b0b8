package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// six publishes six interfaces of as many hosts.
func (w *world) six() (interfaces []string) {
	keys := make(map[string]string)
	for n := range 6 {
		host, iface := fmt.Sprintf("s%d.shop.svc.cluster.local:20880", n), fmt.Sprintf("api.S%d", n)
		w.offer(host, "10.0.0.1", "10.0.0.2")
		keys["providers:"+iface+"::"] = host
		interfaces = append(interfaces, iface)
	}
	w.publish(keys)
	return interfaces
}

// defaults returns a configuration without timing, guard and intervals.
func (w *world) defaults(file string) string {
	text := w.text(file)
	for _, own := range []string{", timing: { debounce: 1ms, retryMin: 10ms, retryMax: 100ms }", ", timing: { debounce: 1ms, retryMin: 10ms, retryMax: 100ms, refresh: 2s }", ", guard: { settle: 0s, lastEndpoint: 0s, share: 1 }"} {
		text = strings.ReplaceAll(text, own, "")
	}
	return w.file("defaults.yaml", text)
}

// TestRepair_DeletedRoot with the defaults: long before the bridge would
// read anything again by itself, which lasts five minutes.
func TestRepair_DeletedRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	interfaces := w.six()
	file := w.defaults(w.config(fileOptions{}))
	r := w.start(file)
	isInSync(t, file)
	w.zk.Delete("/dubbo")
	eventually(t, "all are there again", func() bool {
		return !slices.ContainsFunc(interfaces, func(iface string) bool { return len(w.providers(iface)) != 2 })
	})
	do(t, "events", "-f", file).want(t, exitOK, "our entries were changed or removed by another writer: another writer deleted 2 of them, or the registry lost them",
		"create tri://10.0.0.1:20880 of bridge mesh-to-zk: another writer deleted it or the registry lost it, and its service still reports it")
	if !strings.Contains(r.log.String(), "drift: our entries were changed or removed by another writer") {
		t.Error("the log does not say that somebody deleted them")
	}
	if _, text := r.probe(t, "/metrics"); !strings.Contains(text, "xdsbridge_drift_found_total{") {
		t.Error("no metric counts it")
	}
}

// TestRepair_EmptiedNacos with the defaults, once connected.
func TestRepair_EmptiedNacos(t *testing.T) {
	t.Parallel()
	w := newNacosWorld(t, "")
	interfaces := w.six()
	file := w.defaults(w.conf(""))
	w.start(file)
	isInSync(t, file)
	w.nacos.Forget()
	w.nacos.Drop()
	eventually(t, "all are there again", func() bool {
		return !slices.ContainsFunc(interfaces, func(iface string) bool {
			service := nacosService(iface)
			service.Name = "providers:" + iface + "::"
			return len(w.nacos.Instances(service)) != 2
		})
	})
}
