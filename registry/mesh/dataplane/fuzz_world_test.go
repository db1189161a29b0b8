package dataplane_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzWorld is FuzzStream for clusters in the state of the world: at the end the
// last answer is the one that a client gets that asks for the same anew.
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
				names["*"] = true // what asks for nothing keeps what it has
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
