package zookeeper_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// withFence returns an option that gives a target the right to write.
func withFence(f *zookeeper.Fence, may *bool) func(*zookeeper.TargetOptions) {
	return func(o *zookeeper.TargetOptions) {
		o.Shared = true
		o.Fence = func() (zookeeper.Fence, bool) { return *f, may == nil || *may }
	}
}

// TestFence_OlderTerm shows that a process that leads no more cannot
// write, whatever it believes.
func TestFence_OlderTerm(t *testing.T) {
	t.Parallel()
	server := serve(t)
	before, after := zookeeper.Fence{Term: 7, Holder: "a"}, zookeeper.Fence{Term: 8, Holder: "b"}
	old, next := target(t, dial(t, server), withFence(&before, nil)), target(t, dial(t, server), withFence(&after, nil))
	must(t, old.Write(t.Context(), creation(ours(0, 1, 0))))

	if _, err := next.Read(t.Context(), groupN(0)); err != nil { // a new leader begins with reading
		t.Fatal(err)
	}
	for range 2 {
		if err := old.Write(t.Context(), creation(ours(0, 2, 0))); !errors.Is(err, registry.ErrFenced) {
			t.Fatalf("Write under the earlier term = %v, want ErrFenced", err)
		}
	}
	must(t, next.Write(t.Context(), creation(ours(0, 3, 0))))
	if _, err := old.Read(t.Context(), groupN(0)); !errors.Is(err, registry.ErrFenced) {
		t.Errorf("Read under the earlier term = %v, want ErrFenced", err)
	}
	if got := read(t, next, groupN(0)); len(got) != 2 || got[0].Entry != ours(0, 1, 0) || got[1].Entry != ours(0, 3, 0) {
		t.Errorf("Read = %v, want the entries 1 and 3", got)
	}
	before.Term = 9 // it leads again
	must(t, old.Write(t.Context(), creation(ours(0, 4, 0))))
	if err := next.Write(t.Context(), creation(ours(0, 5, 0))); !errors.Is(err, registry.ErrFenced) {
		t.Errorf("Write of the second after the first leads again = %v, want ErrFenced", err)
	}
}

// TestFence_ConcurrentRaise shows that a write of the earlier
// term that is in flight fails.
func TestFence_ConcurrentRaise(t *testing.T) {
	inVirtualTime(t, "the earlier is delayed", func(t *testing.T, server *zkfake.Server) {
		must(t, server.Put("/xds-bridge/shop/fence", []byte("6 c")))
		early, late := zookeeper.Fence{Term: 7, Holder: "a"}, zookeeper.Fence{Term: 8, Holder: "b"}
		slow, quick := dial(t, server), dial(t, server)
		defer slow.Close()
		defer quick.Close()
		of := target(t, slow, withFence(&early, nil))
		if _, err := of.Groups(t.Context()); err != nil { // there is a session then
			t.Fatal(err)
		}
		session := slow.State().Session
		server.SetFault(func(r zkfake.Request) zkfake.Fault {
			if r.Session == session && r.Op == zkfake.OpMulti {
				return zkfake.Fault{Delay: time.Second}
			}
			return zkfake.Fault{}
		})
		time.AfterFunc(500*time.Millisecond, func() {
			if _, err := target(t, quick, withFence(&late, nil)).Read(t.Context(), groupN(0)); err != nil {
				t.Error(err)
			}
		})
		if err := of.Write(t.Context(), creation(ours(0, 1, 0))); !errors.Is(err, registry.ErrFenced) {
			t.Errorf("Write under the earlier term = %v, want ErrFenced", err)
		}
		if n, _ := server.Get("/xds-bridge/shop/fence"); string(n.Data) != "8 b" {
			t.Errorf("fence = %q, want 8 b", n.Data)
		}
	})
}

func TestFence(t *testing.T) {
	t.Parallel()
	t.Run("who does not lead is refused before anything is sent, and reads without raising", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		f, may := zookeeper.Fence{Term: 5, Holder: "a"}, false
		a := target(t, dial(t, server), withFence(&f, &may))
		if err := a.Write(t.Context(), creation(ours(0, 1, 0))); !errors.Is(err, registry.ErrFenced) {
			t.Error(err)
		}
		if _, err := a.Read(t.Context(), groupN(0)); err != nil {
			t.Error(err)
		}
		if _, there := server.Get("/xds-bridge/shop/fence"); there {
			t.Error("the fence was raised by a replica that does not lead, want none")
		}
	})
	t.Run("one term of two holders is the first one's", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		one, two := zookeeper.Fence{Term: 5, Holder: "a"}, zookeeper.Fence{Term: 5, Holder: "b"}
		must(t, target(t, dial(t, server), withFence(&one, nil)).Write(t.Context(), creation(ours(0, 1, 0))))
		if err := target(t, dial(t, server), withFence(&two, nil)).Write(t.Context(), creation(ours(0, 2, 0))); !errors.Is(err, registry.ErrFenced) {
			t.Error(err)
		}
	})
	t.Run("another term of the same process is raised as well", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		f := zookeeper.Fence{Term: 5, Holder: "a"}
		late := f // of a write that is in flight since then
		a, old := target(t, dial(t, server), withFence(&f, nil)), target(t, dial(t, server), withFence(&late, nil))
		must(t, a.Write(t.Context(), creation(ours(0, 1, 0))))
		must(t, old.Write(t.Context(), creation(ours(0, 2, 0))))
		f.Term = 6
		must(t, a.Write(t.Context(), creation(ours(0, 3, 0))))
		if n, _ := server.Get("/xds-bridge/shop/fence"); string(n.Data) != "6 a" {
			t.Errorf("fence = %q, want 6 a", n.Data)
		}
		if err := old.Write(t.Context(), creation(ours(0, 4, 0))); !errors.Is(err, registry.ErrFenced) {
			t.Errorf("Write under the term before = %v, want ErrFenced", err)
		}
	})
	t.Run("a fence that was deleted is raised again", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		f := zookeeper.Fence{Term: 5, Holder: "a"}
		a := target(t, dial(t, server), withFence(&f, nil))
		must(t, a.Write(t.Context(), creation(ours(0, 1, 0))))
		server.Delete("/xds-bridge/shop/fence")
		must(t, a.Write(t.Context(), creation(ours(0, 2, 0))))
		if n, _ := server.Get("/xds-bridge/shop/fence"); string(n.Data) != "5 a" {
			t.Errorf("fence = %q, want 5 a", n.Data)
		}
	})
	t.Run("a content that is not a term is kept", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		must(t, server.Put("/xds-bridge/shop/fence", []byte("mine")))
		f := zookeeper.Fence{Term: 5, Holder: "a"}
		if err := target(t, dial(t, server), withFence(&f, nil)).Write(t.Context(), creation(ours(0, 1, 0))); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
	})
}

func TestRecord(t *testing.T) {
	t.Parallel()
	server := serve(t)
	open := func() *zookeeper.LeaseStore {
		t.Helper()
		r, err := zookeeper.NewLeaseStore(dial(t, server), owner, "zk", zookeeper.Open)
		must(t, err)
		return r
	}
	a, b := open(), open()
	if data, version, err := a.Load(t.Context()); err != nil || data != nil || version != "" {
		t.Fatalf("Load without a record = %q, %q, %v, want none", data, version, err)
	}
	must(t, a.Save(t.Context(), []byte("one"), ""))
	if err := b.Save(t.Context(), []byte("two"), ""); !errors.Is(err, registry.ErrConflict) {
		t.Fatalf("Save of a record that exists = %v, want ErrConflict", err)
	}
	data, version, err := b.Load(t.Context())
	if err != nil || !bytes.Equal(data, []byte("one")) {
		t.Fatalf("Load = %q, %v, want one", data, err)
	}
	_, first, err := a.Load(t.Context())
	must(t, err)
	must(t, a.Save(t.Context(), []byte("three"), first))
	if err := b.Save(t.Context(), []byte("four"), version); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Save over another version = %v, want ErrConflict", err)
	}
	server.Delete("/xds-bridge/shop/leases/zk")
	if err := a.Save(t.Context(), []byte("five"), first); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Save over a deleted record = %v, want ErrConflict", err)
	}
	if err := b.Save(t.Context(), []byte("x"), "x"); err == nil {
		t.Error("Save with version x: got no error, want one")
	}
	other, err := zookeeper.NewLeaseStore(dial(t, server), owner, "other", zookeeper.Open)
	must(t, err)
	must(t, other.Save(t.Context(), []byte("of another target"), ""))
	if data, _, err := a.Load(t.Context()); err != nil || data != nil {
		t.Errorf("Load after another target saved = %q, %v, want none", data, err)
	}
}
