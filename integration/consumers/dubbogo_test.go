// Package consumers_test shows that running consumers fail no call and miss no
// change while weights, zones and metadata of what they call change at the
// source: how a change is written follows who reads it.
package consumers_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// soon is what may pass on a busy machine until something is seen that lasts
// milliseconds on an idle one.
const soon = time.Minute

// state is what the source says of one provider.
type state struct {
	weight      int
	zone, color string
}

// states are the states of three providers, all at once each time: so that
// a consumer for which all of them are away for a moment has nobody to call.
// The last is the first again.
var states = [][]state{
	{{100, "eu/a", "blue"}, {100, "eu/a", "blue"}, {100, "eu/b", "blue"}},
	{{100, "eu/a", "blue"}, {100, "eu/a", "blue"}, {600, "eu/b", "blue"}},
	{{100, "eu/b", "blue"}, {100, "eu/b", "blue"}, {600, "eu/a", "blue"}},
	{{100, "eu/b", "red"}, {100, "eu/b", "green"}, {600, "eu/a", "red"}},
	{{300, "eu/c", "red"}, {200, "eu/c", "red"}, {100, "eu/c", "red"}},
	{{100, "eu/a", "blue"}, {100, "eu/a", "blue"}, {100, "eu/b", "blue"}},
}

const providersPath = "/dubbo/" + harness.DubboInterface + "/providers"

// providers are the nodes of three providers in a source.
func providers(ports []int, all []state) (paths []string) {
	for i, s := range all {
		u := fmt.Sprintf("tri://127.0.0.1:%d/%s?application=greet&category=providers&color=%s&interface=%[2]s&meshLocality=%[4]s&side=provider&weight=%[5]d",
			ports[i], harness.DubboInterface, s.color, s.zone, s.weight)
		paths = append(paths, providersPath+"/"+url.QueryEscape(u))
	}
	return paths
}

// TestDubboGo: a change of an entry in ZooKeeper left running consumers of
// dubbo-go without a provider for milliseconds.
func TestDubboGo(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	source := harness.StartZooKeeper(t)
	ports := []int{harness.StartDubboGo(t), harness.StartDubboGo(t), harness.StartDubboGo(t)}
	slices.Sort(ports)
	s := &sourceOf{Znodes: harness.Connect(t, source.Address), ports: ports}
	s.set(t, states[0])
	t.Run("at ZooKeeper", func(t *testing.T) {
		target := harness.StartZooKeeper(t)
		bridgeTo(t, source, "zookeeper: { servers: ["+target.Address+"] }")
		s.follows(t, harness.ReferDubboGo(t, target, harness.DubboGoInterface))
	})
	t.Run("at Nacos", func(t *testing.T) {
		target := harness.SharedNacos(t, 2)
		bridgeTo(t, source, "nacos: { "+target.Settings()+" }")
		s.follows(t, harness.ReferDubboGoAtNacos(t, target, harness.DubboGoInterface))
	})
}

// bridgeTo starts a bridge from a ZooKeeper to another registry, with the
// timing and the guard that it has by default.
func bridgeTo(t *testing.T, source *harness.ZooKeeper, target string) {
	t.Helper()
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  source: { zookeeper: { servers: [%q] } }
  target: { %s }
bridges:
  - { name: all, from: source, to: target, formats: [dubbo-interface, kratos], select: { allow: [127.0.0.0/8] } }`, source.Address, target))
	bridge.Start(t)
	bridge.AwaitReady(t)
}

// sourceOf is a ZooKeeper in which three providers are.
type sourceOf struct {
	*harness.Znodes

	ports []int
	nodes []string
}

// set makes the providers be what a list of states says, in one transaction.
func (s *sourceOf) set(t *testing.T, all []state) {
	t.Helper()
	nodes := providers(s.ports, all)
	switch {
	case slices.Equal(nodes, s.nodes):
	case s.nodes == nil:
		for _, path := range nodes {
			s.Create(t, path, "")
		}
	default:
		s.Replace(t, s.nodes, nodes)
	}
	s.nodes = nodes
}

// follows changes the source under a consumer, which is to see each change and
// to fail no call.
func (s *sourceOf) follows(t *testing.T, c *harness.DubboGoConsumer) {
	t.Helper()
	for i, all := range states {
		s.set(t, all)
		harness.Eventually(t, soon, fmt.Sprintf("the consumer sees change %d", i), func() error { return harness.Same(c.Seen(), expected(s.ports, all)) })
	}
	if failed := c.Failed(); len(failed) > 0 {
		t.Errorf("%d calls failed, of %v answered; the first: %s", len(failed), c.Calls(), failed[0])
	}
	t.Log("answered:", c.Calls())
}

// expected is what a consumer chooses from.
func expected(ports []int, all []state) (out []string) {
	for i, s := range all {
		out = append(out, fmt.Sprintf("%d weight=%d meshLocality=%s color=%s", ports[i], s.weight, s.zone, s.color))
	}
	return out
}
