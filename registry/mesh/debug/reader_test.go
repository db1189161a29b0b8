package debug_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

func TestReader(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
	run("a key published later is there within one interval", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		w := watch(t, o)
		in(time.Second)
		if s := w.snapshot(); !s.Complete || s.Err != nil || s.Mapping.Len() != 0 {
			t.Fatalf("snapshot %+v, want a complete empty one", s)
		}
		istiods[0].connect("a.shop", oneA)
		in(5 * time.Second)
		expect(t, w, "A a")
	})
	run("a key that moves is followed within one interval", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		old := istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a")
		istiods[0].disconnect(old)
		istiods[0].connect("a.shop", strings.Replace(oneA, "a.shop", "b.shop", 1))
		in(5 * time.Second)
		expect(t, w, "A b")
	})
	run("two apps with one key give the union, and report", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("a.shop", oneA)
		istiods[0].connect("b.shop", strings.Replace(oneA, "a.shop", "b.shop", 1))
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a b")
		c := w.snapshot().Mapping.Conflicts()
		if len(c) != 1 || c[0].Kind != metadata.ManyHosts || !slices.Equal(c[0].Clients, []string{"a.shop-1", "b.shop-2"}) {
			t.Errorf("conflicts %+v, want one of two clients", c)
		}
	})
	run("a key that a connected client withdraws is removed after the grace", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		old := istiods[0].connect("a.shop", oneA)
		istiods[0].connect("b.shop", oneB)
		w := watch(t, o)
		in(time.Second)
		istiods[0].disconnect(old)
		istiods[0].connect("a.shop", "{}")
		in(13 * time.Second) // seen 4 s later, and 10 s from then
		expect(t, w, "A a, B b")
		in(2 * time.Second)
		expect(t, w, "B b")
	})
	run("a key whose connection ended is removed after the connection grace", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("b.shop", oneB)
		gone := istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		istiods[0].disconnect(gone)
		in(5 * time.Minute)
		expect(t, w, "A a, B b")
		in(5 * time.Second)
		expect(t, w, "B b")
	})
	run("a key whose connection ended stays while any replica cannot be read", func(t *testing.T) {
		n, istiods, o := mesh(t, "127.0.0.1", "::1")
		istiods[0].connect("b.shop", oneB)
		gone := istiods[0].connect("a.shop", oneA)
		istiods[1].connect("other.shop", "")
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a, B b")
		n.cut("[::1]:15014") // where the client may have gone to
		in(5 * time.Second)
		istiods[0].disconnect(gone)
		in(30 * time.Minute)
		expect(t, w, "A a, B b")
		n.serve(t, "[::1]:15014", istiods[1])
		in(6 * time.Minute)
		expect(t, w, "B b")
	})
	run("a client that comes back in time loses nothing", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("b.shop", oneB)
		gone := istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		reported := w.count()
		istiods[0].disconnect(gone)
		in(4 * time.Minute)
		istiods[0].connect("a.shop", "") // as dubbo-go begins
		in(time.Minute)
		expect(t, w, "A a, B b")
		istiods[0].connect("a.shop", oneA)
		in(6 * time.Minute)
		expect(t, w, "A a, B b")
		if w.count() > reported+1 {
			t.Errorf("%d more reports, want none without a change", w.count()-reported)
		}
	})
	run("a client that withdraws a key and ends does not keep it for minutes", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("b.shop", oneB)
		first := istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		istiods[0].disconnect(first)
		second := istiods[0].connect("a.shop", "{}")
		in(5 * time.Second)
		istiods[0].disconnect(second)
		in(10 * time.Second)
		expect(t, w, "B b")
	})
	run("the invalid JSON of a client affects only that client, and is counted", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("bad.shop", `{"providers:`)
		istiods[0].connect("a.shop", oneA)
		istiods[0].connectWith("odd.shop", map[string]any{"LABELS": map[string]any{"DUBBO_GO": 7}})
		istiods[0].connectWith("odder.shop", map[string]any{"LABELS": "none"})
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a")
		s := w.snapshot()
		if len(s.Skipped) != 3 || s.Skipped[0].Client != "bad.shop-1" || s.Err != nil {
			t.Errorf("skipped %+v, %v", s.Skipped, s.Err)
		}
	})
	run("what a client cannot say any more is kept, not withdrawn", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("b.shop", oneB)
		good := istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		istiods[0].disconnect(good)
		bad := istiods[0].connect("a.shop", `{"`+keyA+`":"nonsense"}`)
		in(6 * time.Minute)
		expect(t, w, "A a, B b")
		istiods[0].disconnect(bad)
		istiods[0].connect("a.shop", `nonsense`)
		in(6 * time.Minute)
		expect(t, w, "A a, B b")
	})
	run("another cluster domain works too", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("a.shop", strings.Replace(oneA, "cluster.local", "corp.example", 1))
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a.shop.svc.corp.example:20000")
	})
	run("keys of a bridge's own node are skipped", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		o.OwnNodes = []string{"xds-bridge-0.istio-system"}
		istiods[0].connect("xds-bridge-0.istio-system", oneA)
		istiods[0].connectWith("other.shop", map[string]any{"LABELS": map[string]any{"DUBBO_GO": oneA, "xdsb": "0123456789"}})
		istiods[0].connect("b.shop", oneB)
		istiods[0].connect("xds-bridge-0.istio-system2", strings.NewReplacer("A", "C", "a.shop", "c.shop").Replace(oneA)) // another node, whose id only begins the same
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "B b, C c")
		if !w.snapshot().Replicas[0].Own {
			t.Error("Own = false, want true for the replica of our connection")
		}
	})
	run("labels outside the metadata are ignored: they are the pod's", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		id := istiods[0].connectWith("pod.shop", nil)
		c := istiods[0].clients[id]
		c.Labels = map[string]string{"DUBBO_GO": oneA}
		istiods[0].clients[id] = c
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "")
	})
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
	run("the parts of three replicas are merged", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2", "127.0.0.3")
		istiods[0].connect("a.shop", oneA)
		istiods[1].connect("b.shop", oneB)
		istiods[2].connect("c.shop", strings.Replace(oneA, "a.shop", "c.shop", 1))
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "A a c, B b")
		if s := w.snapshot(); !s.Complete || len(s.Replicas) != 3 || s.Replicas[1].Clients == 0 {
			t.Errorf("%+v", s)
		}
	})
	run("a replica that is unreachable keeps its part until it is listed no more", func(t *testing.T) {
		n, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2")
		endpoints := new(debug.Endpoints)
		endpoints.Set([]string{"127.0.0.1", "127.0.0.2"})
		o.Replicas = endpoints.Replicas
		istiods[0].connect("a.shop", oneA)
		istiods[1].connect("b.shop", oneB)
		w := watch(t, o)
		in(time.Second)
		istiods[1].misbehave(answerWith(503))
		n.unplug("127.0.0.2:15014")
		in(6 * time.Minute)
		expect(t, w, "A a, B b")
		if s := w.snapshot(); !s.Complete || s.Err == nil {
			t.Errorf("snapshot %+v, want complete with an error", s)
		}
		endpoints.Set(nil) // what a broken xDS connection says
		in(6 * time.Minute)
		expect(t, w, "A a, B b")
		endpoints.Set([]string{"127.0.0.1"})
		in(5*time.Minute + 5*time.Second)
		expect(t, w, "A a")
		if s := w.snapshot(); s.Err != nil {
			t.Errorf("%+v", s)
		}
	})
	run("a replica that is listed no more is read on while it answers", func(t *testing.T) {
		n, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2")
		endpoints := new(debug.Endpoints)
		endpoints.Set([]string{"127.0.0.1", "127.0.0.2"})
		o.Replicas = endpoints.Replicas
		istiods[0].connect("a.shop", oneA)
		istiods[1].connect("b.shop", oneB)
		in(time.Hour)
		w := watch(t, o)
		in(time.Second)
		endpoints.Set([]string{"127.0.0.1"}) // it is not ready
		in(time.Hour)
		expect(t, w, "A a, B b")
		if s := w.snapshot(); !s.Complete || s.Err != nil || s.Replicas[0].Unlisted || !s.Replicas[1].Unlisted {
			t.Errorf("%+v", s)
		}
		endpoints.Set([]string{"127.0.0.1", "127.0.0.2"})
		in(5 * time.Second)
		if s := w.snapshot(); s.Replicas[1].Unlisted {
			t.Errorf("replicas %+v, want both listed", s.Replicas)
		}
		endpoints.Set([]string{"127.0.0.1"})
		in(5 * time.Second)
		n.cut("127.0.0.2:15014")
		in(5 * time.Second)
		if s := w.snapshot(); !s.Complete || s.Err != nil || len(s.Replicas) != 1 {
			t.Errorf("snapshot %+v, want one replica", s)
		}
		n.serve(t, "127.0.0.2:15014", istiods[1]) // another process has the address now
		istiods[1].takeRequests()
		in(5*time.Minute - 10*time.Second)
		expect(t, w, "A a, B b")
		in(15 * time.Second)
		expect(t, w, "A a")
		if requests := istiods[1].takeRequests(); len(requests) > 0 {
			t.Errorf("requests %q, want none", requests)
		}
	})
	run("a replica that is listed no more and does not answer for a while is not waited for", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2")
		endpoints := new(debug.Endpoints)
		endpoints.Set([]string{"127.0.0.1", "127.0.0.2"})
		o.Replicas = endpoints.Replicas
		gone := istiods[0].connect("a.shop", oneA)
		istiods[1].connect("b.shop", oneB)
		in(time.Hour)
		w := watch(t, o)
		in(time.Second)
		endpoints.Set([]string{"127.0.0.1"})
		in(5 * time.Second)
		istiods[1].misbehave(answerWith(503))
		istiods[0].disconnect(gone)
		in(2 * time.Minute)
		if s := w.snapshot(); !s.Complete || s.Err != nil || len(s.Replicas) != 1 {
			t.Errorf("snapshot %+v, want one replica", s)
		}
		istiods[1].misbehave(nil)
		in(4 * time.Minute)
		expect(t, w, "B b")
		istiods[1].misbehave(answerWith(503))
		in(6 * time.Minute)
		expect(t, w, "")
		istiods[1].misbehave(nil)
		istiods[1].takeRequests()
		in(time.Minute)
		if requests := istiods[1].takeRequests(); len(requests) > 0 {
			t.Errorf("requests %q, want none", requests)
		}
	})
	run("an address of replicas that are listed by their own is read no more", func(t *testing.T) {
		n, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2")
		n.serve(t, "127.0.0.9:15014", istiods[1]) // as a Service leads to one of them
		endpoints := new(debug.Endpoints)
		endpoints.Set([]string{"127.0.0.9"})
		o.Replicas = endpoints.Replicas
		istiods[0].connect("a.shop", oneA)
		istiods[1].connect("b.shop", oneB)
		istiods[1].connect("nothing.shop", "")
		in(time.Hour)
		w := watch(t, o)
		in(time.Second)
		expect(t, w, "B b")
		endpoints.Set([]string{"127.0.0.1", "127.0.0.2"})
		in(10 * time.Second)
		expect(t, w, "A a, B b")
		if s := w.snapshot(); len(s.Replicas) != 2 || s.Replicas[0].Unlisted || s.Replicas[1].Unlisted {
			t.Errorf("%+v", s.Replicas)
		}
	})
	run("of the claims that no client can end, one is kept for each key and address", func(t *testing.T) {
		n, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2")
		istiods[0].connect("b.shop", oneB)
		istiods[1].connect("c.shop", strings.Replace(oneA, "a.shop", "c.shop", 1))
		w := watch(t, o)
		in(time.Second)
		n.unplug("127.0.0.2:15014")
		istiods[1].misbehave(answerWith(503))
		roll := func(n int) { // all pods of a deployment are replaced
			ids := make([]string, 20)
			for i := range ids {
				ids[i] = istiods[0].connect(fmt.Sprintf("a-%d-%d.shop", n, i), manyKeys(0, 100))
			}
			in(6 * time.Second)
			istiods[0].disconnect(ids...)
			in(6 * time.Second)
		}
		roll(0)
		if got := w.snapshot().Waiting; got != 20*100 {
			t.Errorf("%d wait, want 2000", got)
		}
		for n := range 5 {
			roll(n + 1)
		}
		if s := w.snapshot(); s.Waiting != 100 || s.Mapping.Len() != 102 {
			t.Errorf("%d claims wait, %d keys, want 100 and 102", s.Waiting, s.Mapping.Len())
		}
	})
	run("of more claims that map something else the oldest go", func(t *testing.T) {
		n, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2")
		istiods[0].connect("b.shop", oneB)
		istiods[1].connect("c.shop", "")
		w := watch(t, o)
		in(time.Second)
		n.unplug("127.0.0.2:15014")
		istiods[1].misbehave(answerWith(503))
		for _, first := range []int{0, 6000} {
			id := istiods[0].connect(fmt.Sprintf("a-%d.shop", first), manyKeys(first, 6000))
			in(6 * time.Second)
			istiods[0].disconnect(id)
			in(6 * time.Second)
		}
		m := w.snapshot().Mapping
		if m.Len() != 10001 || w.snapshot().Waiting != 10000 || len(m.Hosts(mustKey(t, "providers:api.K11999::"))) != 1 {
			t.Errorf("%d keys, %d claims wait, want 10001 and 10000", m.Len(), w.snapshot().Waiting)
		}
	})
	run("one of three that never answered leaves the mapping incomplete, and nothing is removed", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2")
		o.Replicas = debug.Static("127.0.0.1", "127.0.0.2", "127.0.0.3")
		istiods[0].connect("b.shop", oneB)
		gone := istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		s := w.snapshot()
		if s.Complete || len(s.Replicas) != 3 || !s.Replicas[0].Answered || s.Replicas[2].Answered {
			t.Fatalf("%+v", s)
		}
		expectCause(t, s.Err, debug.Unreachable)
		istiods[0].disconnect(gone)
		istiods[0].connect("a.shop", "{}") // for the client may be connected to the third as well
		in(6 * time.Minute)
		expect(t, w, "A a, B b")
	})
	run("a connection that moves between replicas changes nothing", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1", "127.0.0.2")
		istiods[0].connect("b.shop", oneB)
		first := istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		reported := w.count()
		istiods[0].disconnect(first)
		in(30 * time.Second)
		istiods[1].connect("a.shop", oneA)
		in(4 * time.Minute)
		expect(t, w, "A a, B b")
		if w.count() != reported {
			t.Errorf("%d more reports, want none without a change", w.count()-reported)
		}
	})
	run("a restarted istiod with few clients removes nothing", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("b.shop", oneB)
		in(time.Hour)
		early := istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		in(time.Second)
		if !w.snapshot().Restarting.IsZero() {
			t.Error("Restarting is set, want zero for an istiod that is up for an hour")
		}
		istiods[0].disconnect(early)
		in(4 * time.Minute)
		istiods[0].restart()
		istiods[0].connect("b.shop", oneB)
		in(4 * time.Minute) // five after the first ended, but its client may reconnect to this istiod too
		expect(t, w, "A a, B b")
		if left := time.Until(w.snapshot().Restarting); left <= 0 || left > 5*time.Minute {
			t.Errorf("Restarting in %s, want within 5 minutes", left)
		}
		in(2 * time.Minute)
		expect(t, w, "B b")
		if !w.snapshot().Restarting.IsZero() {
			t.Error("Restarting is set, want zero")
		}
	})
	run("clients that reconnect before each read are reported once", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		var logged lines
		o.Log = slog.New(slog.NewTextHandler(&logged, nil))
		istiods[0].connect("a.shop", oneA)
		w := watch(t, o)
		for range 20 {
			in(15 * time.Second)
			istiods[0].restart()
			istiods[0].connect("a.shop", oneA)
		}
		if n := logged.count("replica restarted"); n != 1 || w.snapshot().Restarting.IsZero() {
			t.Errorf("logged the restart %d times, Restarting %v, want once and a time", n, w.snapshot().Restarting)
		}
		in(10 * time.Minute)
		if n := logged.count("reconnect period"); n != 1 {
			t.Errorf("logged the end %d times, want once", n)
		}
		expect(t, w, "A a")
	})
	run("replicas are listed again, sooner after a failure", func(t *testing.T) {
		_, istiods, o := mesh(t, "127.0.0.1")
		istiods[0].connect("a.shop", oneA)
		endpoints := new(debug.Endpoints)
		o.Replicas = endpoints.Replicas
		w := watch(t, o)
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.NoReplicas)
		endpoints.Set([]string{"127.0.0.1"})
		in(1100 * time.Millisecond)
		expect(t, w, "A a")
	})
	run("an empty list of replicas is a failure to list", func(t *testing.T) {
		_, _, o := mesh(t)
		w := watch(t, o)
		in(time.Second)
		expectCause(t, w.snapshot().Err, debug.NoReplicas)
	})
}

// manyKeys is what a pod publishes that provides many interfaces.
func manyKeys(first, n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"providers:api.K%d::":"a.shop.svc.cluster.local:20000"`, first+i)
	}
	return "{" + strings.Join(keys, ",") + "}"
}

type lookup map[string][]string

func (l lookup) LookupHost(_ context.Context, host string) ([]string, error) {
	if addresses := l[host]; addresses != nil {
		return addresses, nil
	}
	return nil, errors.New("no such host")
}

func TestDNS(t *testing.T) {
	t.Parallel()
	names := lookup{"istiod-headless": {"10.0.0.1", "2001:db8::1"}}
	cases := map[string]struct {
		name string
		want []string
	}{
		"every address of a headless name": {"istiod-headless", []string{"10.0.0.1", "2001:db8::1"}},
		"with a port":                      {"istiod-headless:15014", []string{"10.0.0.1:15014", "[2001:db8::1]:15014"}},
		"a name that does not exist":       {"istiod", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := debug.DNS(names, c.name)(t.Context())
			if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
				t.Errorf("list() = %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestEndpoints_Replicas(t *testing.T) {
	names := lookup{"istiod": {"10.96.0.1"}}
	for name, c := range map[string]struct{ name, resolved, known string }{
		"with a port":    {"istiod:15012", "[10.96.0.1:15012]", "[10.0.0.1:15012 [2001:db8::1]:15012]"},
		"without a port": {"istiod", "[10.96.0.1]", "[10.0.0.1 2001:db8::1]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const wait = 20 * time.Second
				known := func(e *debug.Endpoints) { e.Set([]string{"10.0.0.1:15010", "[2001:db8::1]:15010"}) }
				ask := func(list func(context.Context) ([]string, error), want string, after time.Duration) {
					t.Helper()
					began := time.Now()
					if got, err := list(t.Context()); err != nil || fmt.Sprint(got) != want || time.Since(began) != after {
						t.Errorf("%v, %v after %s; want %s after %s", got, err, time.Since(began), want, after)
					}
				}
				reported := &debug.Endpoints{}
				time.AfterFunc(time.Second, func() { known(reported) })
				ask(reported.Behind(names, c.name, wait), c.known, time.Second)

				late := &debug.Endpoints{}
				list := late.Behind(names, c.name, wait)
				ctx, cancel := context.WithTimeout(t.Context(), wait/4)
				defer cancel()
				if got, err := list(ctx); err == nil {
					t.Errorf("list() = %v before the timeout, want an error", got)
				}
				ask(list, c.resolved, wait-wait/4)
				ask(list, c.resolved, 0)
				known(late)
				ask(list, c.known, 0)
			})
		})
	}
}

func TestServiceOf_KubernetesNames(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"istiod.istio-system.svc:15012":              "istiod.istio-system.svc.corp.example:15012",
		"istiod.istio-system:15010":                  "istiod.istio-system.svc.corp.example:15010",
		"istiod.istio-system.svc.corp.example:15012": "istiod.istio-system.svc.corp.example:15012",
		"127.0.0.1:15010":                            "",
		"localhost:15010":                            "",
		"istiod.istio-system.svc":                    "",
	} {
		if got, ok := debug.ServiceOf(address, "corp.example"); ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s: %s, %t; want %s", address, got, ok, want)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	replicas := debug.Static("127.0.0.1")
	cases := map[string]struct {
		o    debug.Options
		want string
	}{
		"no replicas":       {debug.Options{HTTP: &debug.HTTPOptions{}}, "Replicas"},
		"no transport":      {debug.Options{Replicas: replicas}, "HTTP and XDS"},
		"two transports":    {debug.Options{Replicas: replicas, HTTP: &debug.HTTPOptions{}, XDS: &debug.XDSOptions{}}, "HTTP and XDS"},
		"no dialer":         {debug.Options{Replicas: replicas, XDS: &debug.XDSOptions{}}, "Dial"},
		"negative interval": {debug.Options{Replicas: replicas, HTTP: &debug.HTTPOptions{}, Interval: -1}, "Interval"},
		"negative size":     {debug.Options{Replicas: replicas, HTTP: &debug.HTTPOptions{}, MaxBytes: -1}, "MaxBytes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := debug.New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not name %s", err, c.want)
			}
		})
	}
}
