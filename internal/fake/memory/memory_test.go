package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

func group(n int) registry.Group {
	return registry.Group{Kind: "test", Namespace: "/root", Name: fmt.Sprintf("group-%d", n)}
}

func entry(owner string) func(n, i, v int) registry.Entry {
	return func(n, i, v int) registry.Entry {
		return registry.Entry{Group: group(n), Key: fmt.Sprintf("key-%03d", i), Value: fmt.Sprintf("value-%d by %s", v, owner)}
	}
}

// mark reads the owner as the entries of this test hold it.
func mark(e registry.Entry) string {
	_, owner, _ := strings.Cut(e.Value, " by ")
	return owner
}

func TestTarget_Conformance(t *testing.T) {
	t.Parallel()
	conformance.Target(t, func(*testing.T) conformance.Fixture {
		target := memory.New(memory.Options{Owner: "us", Mark: mark})
		return conformance.Fixture{
			Target: target, Owner: "us", Group: group, Entry: entry("us"), Foreign: entry("them"),
			Hostile: func(text string) registry.Entry {
				return registry.Entry{Group: group(0), Key: "key" + text, Value: text + " by us"}
			},
			Set: func(_ *testing.T, e registry.Entry) {
				target.Set(registry.Stored{Entry: e, Owner: mark(e), Live: true})
			},
			Drop: func(_ *testing.T, e registry.Entry) { target.Drop(e.Group, e.Key) },
		}
	})
}

func create(n int) registry.Change {
	e := entry("us")(n, 0, 0)
	return registry.Change{Group: e.Group, Put: []registry.Write{{New: e}}, Want: []registry.Entry{e}}
}

func TestTarget_FailedAndLostCalls(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	target := memory.New(memory.Options{Owner: "us"})
	hook := func(op memory.Op, g registry.Group) error {
		if op == memory.OpWrite && g == group(1) {
			return boom
		}
		return nil
	}
	target.Fail(hook)
	if err := target.Write(t.Context(), create(1)); !errors.Is(err, boom) || len(target.Entries()) != 0 {
		t.Fatalf("%v, %v", err, target.Entries())
	}
	target.Fail(nil)
	target.Lose(hook)
	if err := target.Write(t.Context(), create(1)); !errors.Is(err, boom) || len(target.Entries()) != 1 {
		t.Fatalf("%v, %v", err, target.Entries())
	}
	want := memory.Counts{Writes: 2, Put: 1}
	if got := target.Counts(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestTarget_Delay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		target := memory.New(memory.Options{Delay: time.Minute})
		start := time.Now()
		if _, err := target.Groups(t.Context()); err != nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := target.Read(ctx, group(0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	})
}

func TestTarget_WatchOrder(t *testing.T) {
	t.Parallel()
	var got []string
	target := memory.New(memory.Options{Owner: "us", Watch: func(e memory.Event) {
		switch {
		case e.Old == nil:
			got = append(got, "+"+e.New.Value)
		case e.New == nil:
			got = append(got, "-"+e.Old.Value)
		default:
			got = append(got, e.Old.Value+">"+e.New.Value)
		}
	}})
	if err := target.Write(t.Context(), create(0)); err != nil {
		t.Fatal(err)
	}
	target.Set(registry.Stored{Entry: entry("them")(0, 0, 1)})
	target.Drop(group(0), "key-000")
	target.Drop(group(0), "key-000")
	want := []string{"+value-0 by us", "value-0 by us>value-1 by them", "-value-1 by them"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTarget_Expire(t *testing.T) {
	t.Parallel()
	target := memory.New(memory.Options{Owner: "us", Mark: mark})
	if err := target.Write(t.Context(), create(0)); err != nil {
		t.Fatal(err)
	}
	target.Set(registry.Stored{Entry: entry("them")(0, 1, 0), Owner: "them", Live: true})
	select {
	case <-target.Capabilities().Lost:
		t.Fatal("lost before")
	default:
	}
	target.Expire()
	<-target.Capabilities().Lost
	if got := target.Entries(); len(got) != 1 || mark(got[0]) != "them" {
		t.Errorf("left: %v", got)
	}
}
