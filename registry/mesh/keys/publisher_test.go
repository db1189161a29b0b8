package keys_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
)

func TestSeveralGiveKeys(t *testing.T) {
	for name, story := range map[string]func(t *testing.T, i *istiod, w *world){
		"they are shown as one set, by one node, after one reconnection": func(t *testing.T, i *istiod, w *world) {
			w.SetOf("zk", some("A"))
			w.SetOf("nacos", some("B", "C"))
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A", "B", "C"))
			equal(t, "streams", i.streams(), 1)
			w.SetOf("zk", nil)
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("B", "C"))
		},
		"of two that give one key the first by name counts, whoever came first": func(t *testing.T, i *istiod, w *world) {
			theirs := some("A")
			for key := range theirs {
				theirs[key] = naming.HostAddress{Host: "elsewhere", Port: 1}
			}
			w.SetOf("b", theirs)
			in(time.Second)
			w.SetOf("a", some("A"))
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A"))
			equal(t, "streams", i.streams(), 2)
			w.SetOf("b", nil)
			in(time.Second)
			equal(t, "streams", i.streams(), 2)
		},
		"what one that is gone gave is withdrawn": func(t *testing.T, i *istiod, w *world) {
			w.SetOf("zk", some("A"))
			w.SetOf("nacos", some("B"))
			in(time.Second)
			w.Only("nacos", "new")
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("B"))
			w.Only("nacos")
			w.Only()
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system {}")
		},
		"nothing is announced by taking back what nobody gave": func(t *testing.T, i *istiod, w *world) {
			w.Only()
			in(time.Minute)
			equal(t, "streams", i.streams(), 0)
		},
	} {
		t.Run(name, func(t *testing.T) { one(t, story) })
	}
}
