package lease_test

import (
	"testing"
	"time"
)

// TestARecordThatSomebodySpoiledIsMadeAnew shows that replicas come back to
// deciding by themselves, and that a record of a later version is left alone.
func TestARecordThatSomebodySpoiledIsMadeAnew(t *testing.T) {
	spoil := func(w *world, text string) {
		w.cell.mu.Lock()
		defer w.cell.mu.Unlock()
		w.cell.data, w.cell.version = []byte(text), w.cell.version+1
	}
	worlds(t, map[string]func(*testing.T){
		"no record at all": func(t *testing.T) {
			for _, text := range []string{"{", "0", `"gone"`, `{"format":1,"shards":{}}`} {
				w := newWorld(t, 4)
				a, b := w.joins("a"), w.joins("b")
				w.in(time.Minute)
				spoil(w, text)
				w.in(time.Minute)
				w.decided()
				w.has(map[*replica][2]int{a: {2, 2}, b: {2, 2}})
				a.stop()
				b.stop()
			}
		},
		"a later version's": func(t *testing.T) {
			w := newWorld(t, 4)
			w.joins("a")
			w.in(time.Minute)
			spoil(w, `{"format":2,"shards":[]}`)
			w.in(time.Minute)
			if text := string(w.cell.data); text != `{"format":2,"shards":[]}` {
				t.Error(text)
			}
		},
	})
}
