package keys_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
)

// one runs a story with one istiod in virtual time.
func one(t *testing.T, story func(t *testing.T, i *istiod, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i := startIstiod(t)
		story(t, i, start(t, map[string]*istiod{"a": i}))
	})
}

func TestKeys_OneIstiod(t *testing.T) {
	for name, story := range map[string]func(t *testing.T, i *istiod, w *world){
		"keys are shown as the label of a node of our own": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("B", "A"))
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A", "B"))
			published, problems := metadata.ParsePublication("c", label(i.Connections()[0].Node, "DUBBO_GO"))
			if len(problems) > 0 || !maps.Equal(published.Hosts, some("A", "B")) {
				t.Errorf("read back as %v, %v", published.Hosts, problems)
			}
			s := w.Status()
			if len(s.Replicas) != 1 || !s.Replicas[0].Connected || s.Replicas[0].Keys != 2 || s.Keys != 2 || s.Nodes != 1 {
				t.Errorf("status %+v", s)
			}
		},
		"a thousand keys one after the other are one stream": func(t *testing.T, i *istiod, w *world) {
			var names []string
			for n := range 1000 {
				names = append(names, fmt.Sprint("K", n))
				w.Set(some(names...))
			}
			in(time.Second)
			equal(t, "streams", i.streams(), 1)
			equal(t, "keys", w.Status().Replicas[0].Keys, 1000)
		},
		"nothing is announced before the first set": func(t *testing.T, i *istiod, _ *world) {
			in(time.Minute)
			equal(t, "streams", i.streams(), 0)
		},
		"the last withdrawal is shown as an empty object": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Second)
			w.Set(nil)
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system {}")
			published, _ := metadata.ParsePublication("c", "{}")
			equal(t, "silent", published.Silent, false)
		},
		"the same set again, and one that comes back at once, open nothing": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Second)
			w.Set(some("A"))
			in(time.Second)
			w.Set(some("B"))
			w.Set(some("A"))
			in(time.Second)
			equal(t, "streams", i.streams(), 1)
		},
		"a set does not change with the map that was passed": func(t *testing.T, i *istiod, w *world) {
			mine := some("A")
			w.Set(mine)
			maps.Copy(mine, some("B"))
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A"))
		},
		"a thousand changes are one connection with one stream": func(t *testing.T, i *istiod, w *world) {
			for n := range 1000 {
				w.Set(some(fmt.Sprint("K", n)))
				in(time.Second)
				if accepted, open := i.connections(); accepted != 1 || open != 1 {
					t.Fatalf("change %d: %d connections accepted, %d open, want 1 and 1", n, accepted, open)
				}
				if live := len(i.Connections()); live != 1 {
					t.Fatalf("change %d: %d streams, want 1", n, live)
				}
			}
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("K999"))
			equal(t, "streams", i.streams(), 1000)
		},
		"a change is not reported as an error": func(t *testing.T, _ *istiod, w *world) {
			for n := range 5 {
				w.Set(some(fmt.Sprint("K", n)))
				in(time.Second)
				r := w.Status().Replicas[0]
				if !r.Connected || r.Err != "" {
					t.Errorf("status %+v", r)
				}
			}
			equal(t, "failures and ends", w.count(keys.Failed)+w.count(keys.Ended), 0)
			equal(t, "announcements", w.count(keys.Announced), 5)
		},
		"nothing is subscribed to by an empty name, and no subscription outlives its stream": func(t *testing.T, i *istiod, w *world) {
			for n := range 5 {
				w.Set(some(fmt.Sprint("K", n)))
				in(time.Second)
			}
			for _, r := range i.Requests("") {
				if r.Type != istiodfake.ClusterType || len(r.Subscribe) != 0 {
					t.Errorf("requested %s %q, want clusters without names", r.Type, r.Subscribe)
				}
			}
			equal(t, "types watched", len(i.Connections()[0].Watches), 1)
		},
		"the old stream is kept until the new one is answered": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Second)
			i.Mute()
			w.Set(some("B"))
			in(10 * time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A")+"; bridge-0.istio-system "+text("B"))
			equal(t, "keys", w.Status().Replicas[0].Keys, 1)
			in(keys.DefaultTimeout)
			if !strings.Contains(i.shown(), text("A")) {
				t.Errorf("shown %s, want the old keys", i.shown())
			}
			i.Unmute()
			in(2 * time.Minute)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("B"))
			accepted, _ := i.connections()
			equal(t, "connections", accepted, 1)
		},
		"a new stream that is refused leaves the old one": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Second)
			i.Refuse(status.Error(codes.PermissionDenied, "not yours"))
			w.Set(some("B"))
			in(time.Minute)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A"))
			if err := w.Status().Replicas[0].Err; !strings.Contains(err, "node.namespace") || strings.Contains(err, "\n") {
				t.Errorf("error %q, want one line with node.namespace", err)
			}
			i.Refuse(nil)
			in(time.Minute)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("B"))
			equal(t, "error", w.Status().Replicas[0].Err, "")
		},
		"a stream that istiod ends is opened again within a second": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Minute)
			i.Drop(nil)
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A"))
			equal(t, "ends", w.count(keys.Ended), 1)
		},
		"an istiod that answers and ends every stream is not pressed": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Minute)
			before := i.streams()
			for range 100 {
				i.Drop(nil)
				in(100 * time.Millisecond)
			}
			if opened := i.streams() - before; opened > 12 {
				t.Errorf("%d streams in ten seconds, want at most 12", opened)
			}
		},
		"an unreachable istiod is retried more and more slowly, and found when it is back": func(t *testing.T, i *istiod, w *world) {
			i.unplug(true)
			w.Set(some("A"))
			in(10 * time.Minute)
			if n := w.count(keys.Failed); n < 15 || n > 35 {
				t.Errorf("%d attempts in ten minutes, want 15 to 35", n)
			}
			equal(t, "connected", w.Status().Replicas[0].Connected, false)
			i.unplug(false)
			in(31 * time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A"))
			accepted, open := i.connections()
			equal(t, "connections accepted and open", [2]int{accepted, open}, [2]int{1, 1})
		},
		"keys that were set while istiod was unreachable are shown": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Second)
			i.unplug(true)
			i.Refuse(errors.New("away"))
			i.Drop(nil)
			w.Set(some("B"))
			in(time.Minute)
			w.Set(some("C"))
			in(time.Minute)
			i.Refuse(nil)
			i.unplug(false)
			in(31 * time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("C"))
		},
		"the end of the publisher is the end of its streams and connections": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Second)
			w.end()
			in(0)
			_, open := i.connections()
			equal(t, "streams and connections", [2]int{len(i.Connections()), open}, [2]int{})
		},
		"a publisher that ended publishes again, with the keys that were set meanwhile": func(t *testing.T, i *istiod, w *world) {
			w.Set(some("A"))
			in(time.Second)
			if err := w.Run(t.Context()); err == nil {
				t.Error("second Run() = nil, want an error")
			}
			w.end()
			w.Set(some("B"))
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			in(time.Second)
			equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("B"))
			if r := w.Status().Replicas; len(r) != 1 || !r[0].Connected {
				t.Errorf("%+v", r)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { one(t, story) })
	}
}

func TestKeys_SeveralIstiods(t *testing.T) {
	two := func(t *testing.T, story func(t *testing.T, a, b *istiod, w *world)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			a, b := startIstiod(t), startIstiod(t)
			story(t, a, b, start(t, map[string]*istiod{"a": a, "b": b}))
		})
	}
	for name, story := range map[string]func(t *testing.T, a, b *istiod, w *world){
		"every replica shows the keys": func(t *testing.T, a, b *istiod, w *world) {
			w.Set(some("A"))
			in(time.Second)
			equal(t, "a", a.shown(), "bridge-0.istio-system "+text("A"))
			equal(t, "b", b.shown(), a.shown())
		},
		"a later replica gets the keys, a removed one does not": func(t *testing.T, a, b *istiod, w *world) {
			w.list("a")
			w.Set(some("A"))
			in(10 * time.Second)
			w.list("b")
			in(10 * time.Second)
			equal(t, "b", b.shown(), "bridge-0.istio-system "+text("A"))
			equal(t, "a", a.shown(), "")
			if s := w.Status().Replicas; len(s) != 1 || s[0].Replica != "b" {
				t.Errorf("status %+v", s)
			}
			_, open := a.connections()
			equal(t, "connections to a", open, 0)
		},
		"a listing that fails or is empty changes nothing": func(t *testing.T, a, b *istiod, w *world) {
			w.Set(some("A"))
			in(10 * time.Second)
			w.fail(errors.New("no such host"))
			in(time.Minute)
			if !strings.Contains(w.Status().Err, "no such host") {
				t.Errorf("status %+v", w.Status())
			}
			w.Set(some("B"))
			in(10 * time.Second)
			equal(t, "a", a.shown(), "bridge-0.istio-system "+text("B"))
			equal(t, "b", b.shown(), a.shown())
			w.fail(nil)
			in(10 * time.Second)
			equal(t, "error", w.Status().Err, "")
		},
		"an unreachable one does not delay the other": func(t *testing.T, a, b *istiod, w *world) {
			a.unplug(true)
			w.Set(some("A"))
			in(time.Second)
			equal(t, "b", b.shown(), "bridge-0.istio-system "+text("A"))
			equal(t, "a", a.shown(), "")
		},
	} {
		t.Run(name, func(t *testing.T) { two(t, story) })
	}
}

// TestKeys_Log: what begins in the log also ends there.
func TestKeys_Log(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		i := startIstiod(t)
		w := start(t, map[string]*istiod{"a": i}, func(o *keys.Options) {
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		said := func(want string) {
			t.Helper()
			if n := strings.Count(log.String(), want); n != 1 {
				t.Errorf("logged %q %d times, want once:\n%s", want, n, log.String())
			}
		}
		i.unplug(true)
		w.Set(some("A"))
		in(10 * time.Second)
		said("cannot publish keys, the replica keeps the published ones")
		i.unplug(false)
		in(time.Minute)
		said("keys published again")
		w.fail(errors.New("no such host"))
		in(time.Minute)
		said("cannot list the replicas")
		w.fail(nil)
		in(time.Minute)
		said("replicas of istiod listed again")
		w.end()
	})
}

func TestKeys_SeveralNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := startIstiod(t)
		w := start(t, map[string]*istiod{"a": i}, func(o *keys.Options) { o.MaxBytes = 4 << 10 })
		var names []string
		for n := range 200 {
			names = append(names, fmt.Sprint("K", n))
		}
		read := func() map[naming.ServiceKey]naming.HostAddress {
			all := make(map[naming.ServiceKey]naming.HostAddress)
			for n, c := range i.Connections() {
				if c.Node.GetId() == "" || len(label(c.Node, "DUBBO_GO")) > 4<<10 {
					t.Errorf("node %d is %d bytes", n, len(label(c.Node, "DUBBO_GO")))
				}
				published, _ := metadata.ParsePublication(c.ID, label(c.Node, "DUBBO_GO"))
				maps.Copy(all, published.Hosts)
			}
			return all
		}
		w.Set(some("A"))
		in(time.Second)
		w.Set(some(names...))
		in(time.Second)
		if !maps.Equal(read(), some(names...)) {
			t.Error("the shown keys differ, want all")
		}
		nodes := w.Status().Nodes
		if nodes < 2 || len(i.Connections()) != nodes {
			t.Fatalf("%d nodes and %d streams", nodes, len(i.Connections()))
		}
		for n := range nodes {
			if !strings.Contains(i.shown(), fmt.Sprintf("bridge-0-%d.istio-system {", n+1)) {
				t.Errorf("no node -%d, want one", n+1)
			}
		}
		before := i.streams()
		w.Set(some(append(names, "L")...))
		in(time.Second)
		equal(t, "streams opened for one more key", i.streams()-before, 1)
		w.Set(some("A"))
		in(time.Second)
		equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A"))
		accepted, _ := i.connections()
		equal(t, "connections", accepted, 1)
	})
}

func TestKeys_MarksNodes(t *testing.T) {
	one(t, func(t *testing.T, i *istiod, w *world) {
		w.Set(some("A"))
		in(time.Second)
		if label(i.Connections()[0].Node, metadata.MarkKey) == "" {
			t.Error("node without the mark of a bridge, want it")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		i := startIstiod(t)
		n := node(t)
		w := start(t, map[string]*istiod{"a": i}, func(o *keys.Options) { o.Node = n })
		n.Id = "changed after New"
		w.Set(some("A"))
		in(time.Second)
		equal(t, "shown", i.shown(), "bridge-0.istio-system "+text("A"))
	})
}

func TestOptions_Invalid(t *testing.T) {
	good := func() keys.Options {
		return keys.Options{
			Replicas: func(context.Context) ([]string, error) { return nil, nil },
			Dial:     func(string) (grpc.ClientConnInterface, func(), error) { return nil, nil, errors.New("never") },
			Node:     &corev3.Node{Id: "router~10.0.0.1~b.n~n.svc.cluster.local"},
		}
	}
	for field, change := range map[string]func(*keys.Options){
		"Replicas": func(o *keys.Options) { o.Replicas = nil },
		"Dial":     func(o *keys.Options) { o.Dial = nil },
		"Node":     func(o *keys.Options) { o.Node = nil },
		"Debounce": func(o *keys.Options) { o.Debounce = -1 },
		"Interval": func(o *keys.Options) { o.Interval = -1 },
		"Timeout":  func(o *keys.Options) { o.Timeout = -1 },
		"MaxBytes": func(o *keys.Options) { o.MaxBytes = 100 },
	} {
		t.Run(field, func(t *testing.T) {
			o := good()
			change(&o)
			if _, err := keys.New(o); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("New() = %v, want an error with %s", err, field)
			}
		})
	}
	if _, err := keys.New(good()); err != nil {
		t.Error(err)
	}
}

func TestKeys_SeveralClients(t *testing.T) {
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
		"of two contributors of one key, the first by name wins, in any order": func(t *testing.T, i *istiod, w *world) {
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
		"removing an unknown contributor announces nothing": func(t *testing.T, i *istiod, w *world) {
			w.Only()
			in(time.Minute)
			equal(t, "streams", i.streams(), 0)
		},
	} {
		t.Run(name, func(t *testing.T) { one(t, story) })
	}
}
