package istiod

import (
	"maps"
	"slices"
	"strconv"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// Answer is a response before it is sent; a fault may change it.
type Answer struct {
	Connection string // id
	Type       string
	Version    string
	Nonce      string
	Resources  []*discoveryv3.Resource
	Removed    []string // delta
}

// answer builds the response to a request. It has all resources of a type that istiod sends whole,
// and otherwise the named ones. If names is nil, it has all watched resources. The caller holds mu.
func (c *connection) answer(typeURL string, names map[string]struct{}) (Answer, bool) {
	w := c.watches[typeURL]
	if wildcard(typeURL) {
		a := Answer{Type: typeURL, Resources: c.pick(typeURL, slices.Sorted(maps.Keys(c.server.resources[typeURL])))}
		if c.delta {
			now := set(slices.Collect(maps.Keys(c.server.resources[typeURL])))
			a.Removed = slices.Sorted(maps.Keys(minus(w.names, now)))
			w.names = now
		}
		return c.stamp(w, a)
	}
	if names == nil {
		names = w.names
	}
	a := Answer{Type: typeURL, Resources: c.pick(typeURL, slices.Sorted(maps.Keys(names)))}
	if len(a.Resources) == 0 && c.delta {
		return Answer{}, false
	}
	return c.stamp(w, a)
}

// push sends what changed, clusters first. Endpoints are sent one by one. Clusters and listeners are
// sent whole in the state of the world, and one by one in delta.
func (c *connection) push() error {
	for _, a := range c.pending() {
		if err := c.transport.send(a); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) pending() []Answer {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	changed, full := c.changed, c.full
	c.changed, c.full = map[string]map[string]struct{}{}, false
	var answers []Answer
	for _, typeURL := range order(c.watches) {
		w := c.watches[typeURL]
		names := changed[typeURL]
		var a Answer
		var ok bool
		switch {
		case full, wildcard(typeURL) && !c.delta && len(names) > 0:
			a, ok = c.answer(typeURL, nil)
		case len(names) == 0:
		case wildcard(typeURL):
			a, ok = c.increment(w, typeURL, names)
		default:
			if names = common(names, w.names); len(names) > 0 {
				a, ok = c.answer(typeURL, names)
			}
		}
		if ok {
			answers = append(answers, a)
		}
	}
	return answers
}

// increment returns a delta push of a type that is watched whole.
func (c *connection) increment(w *watch, typeURL string, names map[string]struct{}) (Answer, bool) {
	a := Answer{Type: typeURL}
	var there []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, ok := c.server.resources[typeURL][name]; ok {
			there = append(there, name)
			w.names[name] = struct{}{}
		} else if _, ok := w.names[name]; ok {
			a.Removed = append(a.Removed, name)
			delete(w.names, name)
		}
	}
	a.Resources = c.pick(typeURL, there)
	return c.stamp(w, a)
}

// pick returns resources by name. Unknown endpoints are returned as empty ones; other unknown
// resources are left out. The caller holds mu.
func (c *connection) pick(typeURL string, names []string) []*discoveryv3.Resource {
	var all []*discoveryv3.Resource
	for _, name := range names {
		if _, ok := c.server.faults.withheld[typeURL][name]; ok {
			continue
		}
		body := c.server.resources[typeURL][name]
		if body == nil && typeURL == EndpointType && name != "*" {
			body, _ = anypb.New(&endpointv3.ClusterLoadAssignment{ClusterName: name}) // cannot fail
		}
		if body != nil {
			all = append(all, &discoveryv3.Resource{Name: name, Resource: body})
		}
	}
	return all
}

// stamp sets the nonce of an answer. It returns false if a fault suppresses the answer. The caller
// holds mu.
func (c *connection) stamp(w *watch, a Answer) (Answer, bool) {
	if c.server.faults.mute(a.Type) {
		return Answer{}, false
	}
	a.Connection, a.Version, a.Nonce = c.id, strconv.Itoa(c.server.version), c.server.nonce()
	w.nonce = a.Nonce
	if c.server.faults.alter != nil {
		c.server.faults.alter(&a)
	}
	return a, true
}

// order returns the watched types in the order istiod pushes them.
func order(watches map[string]*watch) []string {
	first := []string{ClusterType, EndpointType, ListenerType, RouteType, SecretType}
	rank := func(t string) int {
		if i := slices.Index(first, t); i >= 0 {
			return i
		}
		return len(first)
	}
	types := slices.Sorted(maps.Keys(watches))
	slices.SortStableFunc(types, func(a, b string) int { return rank(a) - rank(b) })
	return types
}

func common(a, b map[string]struct{}) map[string]struct{} {
	m := map[string]struct{}{}
	for name := range a {
		if _, ok := b[name]; ok {
			m[name] = struct{}{}
		}
	}
	return m
}
