package integration_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// mark is the owner mark in the name of an entry's node.
var mark = regexp.MustCompile(`%26xdsb%3D[0-9a-v.]+`)

// entryOf returns the name of the node of a port.
func (w *world) entryOf(t *testing.T, port int) string {
	t.Helper()
	for _, name := range w.znodes.Children(t, providers) {
		if strings.Contains(name, fmt.Sprintf("%%3A%d%%2F", port)) {
			return name
		}
	}
	t.Fatalf("there is no entry of port %d", port)
	return ""
}

// as returns a bridge of the same configuration under another owner.
func as(t *testing.T, w *world, owner string) *harness.Bridge {
	t.Helper()
	return owned(t, w.config(), owner)
}

// owned returns a bridge of an owner.
func owned(t *testing.T, config harness.BridgeConfig, owner string) *harness.Bridge {
	t.Helper()
	b := harness.NewBridge(t, config)
	text, err := os.ReadFile(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "owner: integration", "owner: "+owner, 1))
	if err := os.WriteFile(b.Config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOwnership(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 19101, 19102)
	w.publish(t)
	config := w.config()
	config.Timing = "refresh: 2s"
	bridge := harness.StartBridge(t, config)
	w.awaitEntries(t, providers, 19101, 19102)

	t.Run("an entry whose mark another tool took off gets it back", func(t *testing.T) {
		marked := w.entryOf(t, 19101)
		w.znodes.Delete(t, providers+"/"+marked)
		w.znodes.Create(t, providers+"/"+mark.ReplaceAllString(marked, ""), "")
		harness.Eventually(t, soon, "the mark is back, and the entry is there once", func() error {
			return errors.Join(harness.Same(len(w.znodes.Children(t, providers)), 2), harness.Same(w.entryOf(t, 19101), marked))
		})
	})
	t.Run("a foreign entry of the same key stays, and is a conflict", func(t *testing.T) {
		foreign := providers + "/" + mark.ReplaceAllString(strings.Replace(w.entryOf(t, 19102), "19102", "19103", 1), "%26timestamp%3D1")
		w.znodes.Create(t, foreign, "")
		w.greet(t, 19101, 19102, 19103)
		harness.Eventually(t, soon, "the conflict is reported", func() error {
			_, out, _ := bridge.Do(t, "events")
			if !strings.Contains(out, "conflict") || !strings.Contains(out, "19103") {
				return fmt.Errorf("events: %s", out)
			}
			return nil
		})
		w.awaitEntries(t, providers, 19101, 19102, 19103)
		w.znodes.Delete(t, foreign)
		w.greet(t, 19101, 19102)
		w.awaitEntries(t, providers, 19101, 19102)
	})
	t.Run("a second process of the owner ends with 2", func(t *testing.T) {
		second := harness.NewBridge(t, config)
		second.Start(t)
		if code := second.Process().Wait(t, time.Minute); code != 2 || !strings.Contains(second.Log(), "another bridge of this owner runs") {
			t.Errorf("exit code %d\n%s", code, second.Log())
		}
	})
	t.Run("an owner that was changed ends with 2 until its predecessor is adopted", func(t *testing.T) {
		changed := as(t, w, "integratoin")
		if code, _, text := changed.Do(t, "adopt", "--from", "integration", "--yes"); code != 2 {
			t.Errorf("adopted from a bridge that runs: %d, %s", code, text)
		}
		bridge.Stop(t)
		before := w.tree(t)
		changed.Start(t)
		if code := changed.Process().Wait(t, time.Minute); code != 2 || !strings.Contains(changed.Log(), " --from integration --yes") {
			t.Errorf("exit code %d\n%s", code, changed.Log())
		}
		if err := harness.Same(w.tree(t), before); err != nil {
			t.Error(err)
		}
		if code, out, text := changed.Do(t, "adopt", "--from", "integration", "--yes"); code != 0 || !strings.Contains(out, "2 entries") {
			t.Fatalf("adopt: %d, %s %s", code, out, text)
		}
		changed.Start(t)
		changed.AwaitReady(t)
		w.greet(t, 19102)
		w.awaitEntries(t, providers, 19102)
		changed.Stop(t)
		if code, _, text := changed.Do(t, "release", "--owner", "integratoin", "--yes"); code != 0 || mark.MatchString(w.entryOf(t, 19102)) {
			t.Errorf("release: %d, %s", code, text)
		}
		if code, out, text := bridge.Do(t, "adopt", "--unmarked", "--yes"); code != 0 || !mark.MatchString(w.entryOf(t, 19102)) {
			t.Errorf("adopt: %d, %s%s", code, out, text)
		}
	})
}

// TestTwoOwners has two meshes bring one address into one ZooKeeper, with the
// default guard and timing. Whichever drops it, the other's entry is there within a
// second.
func TestTwoOwners(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const shared = 19300
	worlds := map[int]*world{19301: newWorld(t), 19302: newWorld(t)} // by the port that is its own
	znodes := worlds[19301].znodes
	for own, w := range worlds {
		w.greet(t, shared, own)
		w.publish(t)
		config := w.config()
		config.ZooKeeper, config.Guard = worlds[19301].config().ZooKeeper, ""
		owned(t, config, fmt.Sprintf("owner-%d", own)).Start(t)
		harness.Eventually(t, soon, "what a mesh has", func() error {
			if !slices.ContainsFunc(znodes.Children(t, providers), holdsAll(fmt.Sprintf("%%3A%d%%2F", own))) {
				return fmt.Errorf("no entry of port %d", own)
			}
			return nil
		})
	}
	for _, own := range []int{19301, 19302, 19301} {
		worlds[19301].awaitEntries(t, providers, shared, 19301, 19302)
		harness.Unchanged(t, "what was written is read back", func() []string { return znodes.Children(t, providers) })
		before := worlds[19301].entryOf(t, shared)
		stopwatch := harness.StartStopwatch()
		worlds[own].greet(t, own)
		harness.Stays(t, 5*time.Second, "consumers have it", func() error {
			if names := znodes.Children(t, providers); slices.ContainsFunc(names, holdsAll(fmt.Sprintf("%%3A%d%%2F", shared))) {
				stopwatch = harness.StartStopwatch()
			} else if stopwatch.Over(time.Second) {
				return fmt.Errorf("no entry of port %d: %q", shared, names)
			}
			return nil
		})
		t.Logf("the entry of both was %q, and is %q", before, worlds[19301].entryOf(t, shared))
		worlds[own].greet(t, shared, own)
	}
}

// TestOwnership_DeniedParent shows, with the defaults, the cost of somebody who removes the
// rights to a parent znode from the bridge: what is there stays, the status says that it is
// refused, and once the rights are back what changed meanwhile is written.
func TestOwnership_DeniedParent(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 19311, 19312)
	w.publish(t)
	config := w.config()
	config.Guard = ""
	bridge := owned(t, config, "closed")
	bridge.Start(t)
	w.awaitEntries(t, providers, 19311, 19312)
	w.znodes.Deny(t, providers, zk.PermCreate|zk.PermDelete|zk.PermWrite)
	w.greet(t, 19312, 19313)
	harness.Eventually(t, soon, "the status says that it is refused", func() error {
		if code, out, _ := bridge.Do(t, "status"); code == 0 || !strings.Contains(out, "refused") {
			return fmt.Errorf("status: %d, %s", code, out)
		}
		return nil
	})
	harness.Stays(t, 10*time.Second, "what is there stays", func() error {
		return harness.Same(len(w.znodes.Children(t, providers)), 2)
	})
	w.znodes.Allow(t, providers)
	w.awaitEntries(t, providers, 19312, 19313)
	isInSync(t, bridge)
}

func TestHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.greet(t, 19201, 19202, 19203, 19204)
	w.publish(t)
	config := w.config()
	config.Guard = "lastEndpoint: 0s, settle: 0s, atLeast: 1"
	bridge := harness.StartBridge(t, config)
	w.awaitEntries(t, providers, 19201, 19202, 19203, 19204)
	w.greet(t, 19204)
	var id string
	held := func(text string) func() error {
		return func() error {
			code, out, _ := bridge.Do(t, "holds")
			found := regexp.MustCompile(`hold ([0-9a-f]+-[0-9a-f]+)`).FindStringSubmatch(out)
			if code != 5 || found == nil || !strings.Contains(out, text) {
				return fmt.Errorf("holds: %d, %s", code, out)
			}
			id = found[1]
			return nil
		}
	}
	harness.Eventually(t, soon, "the deletions are held", held("3 deletions"))
	if code, _, text := bridge.Do(t, "deny", id); code != 0 {
		t.Fatalf("deny: %d, %s", code, text)
	}
	harness.Eventually(t, soon, "the denial is kept", func() error {
		return harness.Same(w.znodes.Children(t, "/xds-bridge/integration/decisions"), []string{id})
	})
	bridge.Kill()
	bridge.Start(t)
	bridge.AwaitReady(t)
	harness.Eventually(t, soon, "the denial survived the restart", func() error {
		code, out, _ := bridge.Do(t, "holds")
		if code != 0 || !strings.Contains(out, "hold "+id) || !strings.Contains(out, "an operator denied it") {
			return fmt.Errorf("holds: %d, %s", code, out)
		}
		return nil
	})
	w.awaitEntries(t, providers, 19201, 19202, 19203, 19204)
	if code, _, text := bridge.Do(t, "approve", id); code != 0 {
		t.Fatalf("approve: %d, %s", code, text)
	}
	w.awaitEntries(t, providers, 19204)
	bridge.Stop(t)
}

// TestTwoOwners_HandOver has two bridges of two meshes bring the only provider of an
// interface. Each time the one whose entry stands drops it, the other's has to be there
// before that one goes: a consumer in Java fails no call.
func TestTwoOwners_HandOver(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	java := harness.StartDubbo(t)
	port := java.Provide(t, "tri")
	worlds := []*world{newWorld(t), newWorld(t)}
	znodes := worlds[0].znodes
	var bridges []*harness.Bridge
	for i, w := range worlds {
		w.greet(t, port)
		w.publish(t)
		config := w.config()
		config.ZooKeeper = worlds[0].config().ZooKeeper
		b := owned(t, config, fmt.Sprintf("owner-%d", i))
		b.Start(t)
		b.AwaitReady(t)
		bridges = append(bridges, b)
	}
	consumer := java.Refer(t, "consumer", worlds[0].zookeeper.Address)
	consumer.AwaitOnly(t, soon, port)
	load := consumer.Load(t)
	conflicts := func(b *harness.Bridge) bool {
		_, why, _ := b.Do(t, "why", greetHost)
		return strings.Contains(why, "reason    conflict")
	}
	for range 10 {
		var holder int
		harness.Eventually(t, soon, "one waits for the other's entry to go", func() error {
			first, second := conflicts(bridges[0]), conflicts(bridges[1])
			if holder = 0; first {
				holder = 1
			}
			if first == second || len(znodes.Children(t, providers)) != 1 {
				return fmt.Errorf("conflicts: %t, %t; entries: %q", first, second, znodes.Children(t, providers))
			}
			return nil
		})
		before := znodes.Children(t, providers)
		worlds[holder].greet(t)
		harness.Eventually(t, soon, "the other's entry is alone", func() error {
			names := znodes.Children(t, providers)
			if len(names) != 1 || names[0] == before[0] || strings.HasSuffix(names[0], "x") {
				return fmt.Errorf("entries: %q", names)
			}
			return nil
		})
		worlds[holder].greet(t, port)
	}
	if failed := load.Failed(); len(failed) > 0 {
		t.Errorf("%d calls failed, of %v answered; the first: %s", len(failed), load.Calls(), failed[0])
	}
	t.Log("answered:", load.Calls())
}
