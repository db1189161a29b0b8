package dataplane_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// FuzzStream changes entries and what a client asks for in any order: at the
// end it has what a new client with the same requests gets.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0, 0x00, 0x11, 0x20, 0x05, 0x15})
	f.Add([]byte{1, 0x00, 0x02, 0x01, 0x03, 0x05, 0x12})
	f.Add([]byte{2, 0x00, 0x06, 0x16, 0x26, 0x04, 0x06})
	f.Add([]byte{5, 0x00, 0x06, 0x01, 0x05, 0x00, 0x07, 0x08, 0x10})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 2 || len(script) > 60 {
			return
		}
		synctest.Test(t, func(t *testing.T) { play(t, script) })
	})
}

func play(t *testing.T, script []byte) {
	t.Helper()
	url := []string{endpointType, clusterType, routeType}[script[0]%3]
	r := start(t)
	name := "outbound|80||h0.internal"
	if script[0]&4 == 0 {
		name = "*"
	}
	d := r.differences(node("shop"), subscribe(url, name))
	d.names = map[string]bool{name: true}
	for step, b := range script[1:] {
		host := fmt.Sprintf("h%d.internal", b>>4%4)
		act(r, d, url, b, entry(host, "HTTP", 80, fmt.Sprintf("10.0.%d.1", step)))
	}
	d.mu.Lock()
	d.mute = false
	nonce := d.nonce
	d.mu.Unlock()
	d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: nonce})
	time.Sleep(20 * time.Second)
	synctest.Wait()
	var all []string
	for name := range maps.Keys(d.names) {
		all = append(all, name)
	}
	want := map[string]string{}
	if len(all) > 0 {
		want = r.differences(node("shop"), subscribe(url, all...)).has()
	}
	if got := d.has(); !maps.Equal(got, want) {
		t.Errorf("%x: has %v, want %v", script, got, want)
	}
}

// act does what a byte of a script says.
func act(r *rig, d *differences, url string, b byte, e dataplane.Entry) {
	r.t.Helper()
	name := "outbound|80||" + e.Spec.GetHosts()[0]
	switch b % 9 {
	case 0, 1:
		r.put(e)
	case 2:
		r.remove(e.Name)
	case 3:
		d.names[name] = true
		d.send(subscribe(url, name))
	case 4:
		if d.names[name] {
			delete(d.names, name)
			if !d.names["*"] {
				d.mu.Lock()
				delete(d.versions, name)
				d.mu.Unlock()
			}
			d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesUnsubscribe: []string{name}})
		}
	case 5:
		time.Sleep(11 * time.Second)
		synctest.Wait()
	case 6:
		e.Spec.ExportTo = []string{"bank"}
		r.put(e)
	case 7:
		e.Spec.ExportTo = []string{"shop", "bank"}
		r.put(e)
	case 8:
		d.mu.Lock()
		d.mute = !d.mute
		nonce := d.nonce
		d.mu.Unlock()
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: nonce})
	}
}

// FuzzWorld is FuzzStream for clusters in the state of the world: at the end the
// last response is the one that a new client with the same requests gets.
func FuzzWorld(f *testing.F) {
	f.Add([]byte{0x00, 0x11, 0x20, 0x05, 0x15})
	f.Add([]byte{0x00, 0x10, 0x03, 0x13, 0x04, 0x02, 0x05})
	f.Add([]byte{0x00, 0x06, 0x16, 0x26, 0x08, 0x03, 0x07})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 60 {
			return
		}
		synctest.Test(t, func(t *testing.T) { playWorld(t, script) })
	})
}

func playWorld(t *testing.T, script []byte) {
	t.Helper()
	r := start(t)
	r.put()
	w := r.world(node("shop"))
	names := make(map[string]bool)
	for step, b := range script {
		host := fmt.Sprintf("h%d.internal", b>>4%4)
		e := entry(host, []string{"HTTP", "GRPC"}[step%2], 80)
		name := "outbound|80||" + host
		switch b % 9 {
		case 0, 1:
			r.put(e)
		case 2:
			r.remove(e.Name)
		case 3:
			names[name] = true
		case 4:
			delete(names, name)
		case 5:
			time.Sleep(11 * time.Second)
			synctest.Wait()
		case 6:
			e.Spec.ExportTo = []string{"bank"}
			r.put(e)
		case 7:
			e.Spec.ExportTo = []string{"shop", "bank"}
			r.put(e)
		case 8:
			names["*"] = !names["*"]
		}
		if op := b % 9; op == 3 || op == 4 || op == 8 {
			maps.DeleteFunc(names, func(_ string, on bool) bool { return !on })
			if len(names) == 0 {
				names["*"] = true // a client that requests nothing keeps what it has
			}
			w.ask(clusterType, slices.Sorted(maps.Keys(names))...)
		}
	}
	time.Sleep(20 * time.Second)
	synctest.Wait()
	again := r.world(node("shop"))
	if len(names) > 0 {
		again.ask(clusterType, slices.Sorted(maps.Keys(names))...)
	}
	if got, want := w.last(), again.last(); !slices.Equal(got, want) {
		t.Errorf("%x: has %q, want %q", script, got, want)
	}
}

// last returns the resources of the last answer.
func (w *world) last() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, a := range w.got[len(w.got)-1].GetResources() {
		all = append(all, string(a.GetValue()))
	}
	return slices.Sorted(slices.Values(all))
}
