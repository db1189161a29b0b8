// Package replicas shows what consumers see while several replicas of the
// bridge share the work on real servers, and come, go and die.
package replicas

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/history"
	"github.com/xds-bridge/xds-bridge/internal/soaktest"
)

const (
	interfaces = 12
	providers  = 3
	ttl        = 3 * time.Second
	soon       = time.Minute // for what lasts a moment on a machine that does nothing else
)

// rounds is how often replicas come and go.
func rounds(t *testing.T) int {
	t.Helper()
	return soaktest.Number(t, "XDS_BRIDGE_ROUNDS", 10)
}

// world is a ZooKeeper in which providers register, and a registry that
// replicas keep in sync with it.
type world struct {
	*history.Recorder

	source   *harness.ZooKeeper
	znodes   *harness.Znodes // of the source
	to       string          // what the target is called
	registry string          // its settings
	lease    string
	ttl      time.Duration
	guard    string
	replicas []*harness.Bridge
}

func newWorld(t *testing.T, registry, lease string) *world {
	t.Helper()
	w := &world{Recorder: history.New(), source: harness.StartZooKeeper(t), to: "to", registry: registry, lease: lease, ttl: ttl, guard: harness.Swift}
	w.znodes = harness.Connect(t, w.source.Address)
	for i := range interfaces {
		for n := range providers {
			w.add(t, i, n+1)
		}
	}
	return w
}

func name(i int) string { return fmt.Sprintf("api.Service%d", i) }

func address(i, n int) string { return fmt.Sprintf("10.1.%d.%d:20880", i, n) }

func (*world) node(i, n int) string {
	u := "dubbo://" + address(i, n) + "/" + name(i) + "?application=shop&category=providers&interface=" + name(i) + "&side=provider"
	return "/dubbo/" + name(i) + "/providers/" + url.QueryEscape(u)
}

func (w *world) add(t *testing.T, i, n int) {
	t.Helper()
	w.Has(name(i), append(slices.Clone(w.Truth()[name(i)]), address(i, n))...)
	w.znodes.Create(t, w.node(i, n), "")
}

func (w *world) remove(t *testing.T, i, n int) {
	t.Helper()
	w.Has(name(i), slices.DeleteFunc(slices.Clone(w.Truth()[name(i)]), func(a string) bool { return a == address(i, n) })...)
	w.znodes.Delete(t, w.node(i, n))
}

// await waits until the subscriber of an interface sees what registered.
func (w *world) await(t *testing.T, i int) {
	t.Helper()
	harness.Eventually(t, soon, name(i), func() error { return w.Shown(name(i)) })
}

// judge waits until subscribers see all there is, and has what happened until
// then judged.
func (w *world) judge(t *testing.T) {
	t.Helper()
	defer w.Judge(t)
	for i := range interfaces {
		w.await(t, i)
	}
}

// replica returns one more replica, which does not run yet.
func (w *world) replica(t *testing.T) *harness.Bridge {
	t.Helper()
	return harness.ConfiguredBridge(t, fmt.Sprintf(`owner: replicas
replicas: { ttl: %s, lease: { %s } }
registries:
  from:
    zookeeper: { servers: [%q] }
  %[4]s:
    %[5]s
    timing: { refresh: 20s, retryMax: 1s }
bridges:
  - { name: b, from: from, to: %[4]s, formats: [dubbo-interface], guard: { %[6]s } }`,
		w.ttl, w.lease, w.source.Address, w.to, w.registry, w.guard))
}

// start runs so many replicas and waits until one leads and all are ready.
func (w *world) start(t *testing.T, n int) {
	t.Helper()
	for range n {
		b := w.replica(t)
		b.Start(t)
		w.replicas = append(w.replicas, b)
	}
	for _, b := range w.replicas {
		b.AwaitReady(t)
	}
	w.awaitReady(t)
}

// leadership is what a replica shows of itself.
type leadership struct {
	Identity  string   `json:"identity"`
	Members   []string `json:"members"`
	Lost      int      `json:"lost"`
	Ready     bool     `json:"ready"`
	LastError string   `json:"last_error"`
	Elections []struct {
		Target string `json:"target"`
		Role   string `json:"role"`
		Leader string `json:"leader"`
		Term   int64  `json:"term"`
	} `json:"elections"`
}

// leads reports whether the replica leads the one target that there is.
func (s leadership) leads() bool { return len(s.Elections) == 1 && s.Elections[0].Role == "leader" }

func leadershipOf(t *testing.T, b *harness.Bridge) (leadership, error) {
	t.Helper()
	_, out, errOut := b.Do(t, "status", "-o", "json")
	var d struct {
		Replicas leadership `json:"replicas"`
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return leadership{}, fmt.Errorf("status: %w: %s", err, errOut)
	}
	return d.Replicas, nil
}

// awaitReady waits until the replicas that run know of each other, are ready, and
// agree on who leads.
func (w *world) awaitReady(t *testing.T) {
	t.Helper()
	running := w.running()
	harness.Eventually(t, soon, "one leads, and all are ready", func() error {
		var leaders []string
		for _, b := range running {
			s, err := leadershipOf(t, b)
			if err != nil {
				return err
			}
			if len(s.Members) != len(running) || !s.Ready || len(s.Elections) != 1 {
				return fmt.Errorf("%d members, ready %t, %+v", len(s.Members), s.Ready, s.Elections)
			}
			if s.leads() {
				leaders = append(leaders, s.Identity)
			}
		}
		if len(leaders) != 1 {
			return fmt.Errorf("%v lead", leaders)
		}
		return nil
	})
}

// leader returns the index of the replica that leads.
func (w *world) leader(t *testing.T) (index int) {
	t.Helper()
	harness.Eventually(t, soon, "one leads", func() error {
		for i, b := range w.replicas {
			if !b.Running() {
				continue
			}
			if s, err := leadershipOf(t, b); err == nil && s.leads() {
				index = i
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return index
}

func (w *world) running() []*harness.Bridge {
	return slices.DeleteFunc(slices.Clone(w.replicas), func(b *harness.Bridge) bool { return !b.Running() })
}
