package integration_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

const (
	hourSides    = 3 // the mesh, ZooKeeper and Nacos
	hourServices = 4 // of each side
	hourMoving   = 8 // endpoints of each service that come and go next to one that stays
)

// hourService is a service that only one side provides.
type hourService struct {
	iface string
	base  int // the port of the endpoint that stays; those that move follow
	there [hourMoving]bool
}

func (s *hourService) ports() []int {
	ports := []int{s.base}
	for i, there := range s.there {
		if there {
			ports = append(ports, s.base+1+i)
		}
	}
	return ports
}

func (s *hourService) host() string {
	return strings.ToLower(strings.TrimPrefix(s.iface, "api.")) + ".shop.svc.cluster.local"
}

// hour is a mesh, a ZooKeeper and a Nacos, and a bridge between the mesh and
// either in both directions.
type hour struct {
	mesh     *harness.Mesh
	istiod   *harness.Istiod
	znodes   *harness.Znodes
	provider nacosHolder
	bridge   *harness.Bridge

	inMesh, inZooKeeper, inNacos []*hourService
}

func newHour(t *testing.T) *hour {
	t.Helper()
	zookeeper, server := harness.StartZooKeeper(t), harness.SharedNacos(t, 3)
	h := &hour{mesh: harness.NewMesh(t), znodes: harness.Connect(t, zookeeper.Address)}
	h.provider = newHolder(t, server)
	base := 21000
	for _, side := range []struct {
		name     string
		services *[]*hourService
	}{{"Mesh", &h.inMesh}, {"ZooKeeper", &h.inZooKeeper}, {"Nacos", &h.inNacos}} {
		for n := range hourServices {
			*side.services = append(*side.services, &hourService{iface: fmt.Sprintf("api.%s%d", side.name, n), base: base})
			base += 10
		}
	}
	for n := range hourServices {
		h.apply(t, h.inMesh[n])
		h.znodes.Create(t, registered(h.inZooKeeper[n].iface, h.inZooKeeper[n].base), "")
		offers(t, h.provider, h.inNacos[n].iface, h.inNacos[n].ports()...)
	}
	listen := []string{harness.Address(t), harness.Address(t)}
	for _, at := range listen {
		h.mesh.From(at)
	}
	xds, debug := harness.Address(t), harness.Address(t)
	bridge := "  - { name: %s-to-%s, from: %[1]s, to: %[2]s, %[3]s formats: [dubbo-interface], select: { allow: [127.0.0.0/8] }, guard: { %[4]s } }\n"
	h.bridge = harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 200ms, connectionGrace: 1s } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 6s } }
  nacos: { nacos: { %s, listInterval: 500ms } }
bridges:
`, xds, debug, zookeeper.Address, server.Settings())+
		fmt.Sprintf(bridge, "zk", "mesh", fmt.Sprintf("listen: %q,", listen[0]), harness.Swift)+
		fmt.Sprintf(bridge, "nacos", "mesh", fmt.Sprintf("listen: %q,", listen[1]), harness.Swift)+
		fmt.Sprintf(bridge, "mesh", "zk", "", harness.Swift)+
		fmt.Sprintf(bridge, "mesh", "nacos", "", harness.Swift))
	h.bridge.Start(t)
	for _, at := range listen {
		harness.Eventually(t, soon, "the bridge listens for istiod", func() error { return harness.Listens(t, at) })
	}
	h.istiod = harness.StartIstiodAt(t, h.mesh, xds, debug)
	keys := make(map[string]string)
	for _, s := range h.inMesh {
		keys["providers:"+s.iface+"::"] = s.host() + ":20000"
	}
	harness.Publish(t, h.istiod.GRPC, "app-1", keys)
	h.bridge.AwaitReady(t)
	return h
}

func (h *hour) apply(t *testing.T, s *hourService) {
	t.Helper()
	h.mesh.Apply(t, harness.Service{Host: s.host(), Port: 20000, Endpoints: harness.Local(s.ports()...)})
}

// event has one endpoint of any service come or go.
func (h *hour) event(t *testing.T, random *rand.Rand) {
	t.Helper()
	n, moves := random.IntN(hourServices), random.IntN(hourMoving)
	flip := func(s *hourService) (there bool) {
		s.there[moves] = !s.there[moves]
		return s.there[moves]
	}
	switch random.IntN(hourSides) {
	case 0:
		flip(h.inMesh[n])
		h.apply(t, h.inMesh[n])
	case 1:
		s := h.inZooKeeper[n]
		if at := registered(s.iface, s.base+1+moves); flip(s) {
			h.znodes.Create(t, at, "")
		} else {
			h.znodes.Delete(t, at)
		}
	case 2:
		flip(h.inNacos[n])
		offers(t, h.provider, h.inNacos[n].iface, h.inNacos[n].ports()...)
	}
}

// TestChurn_Hour has as many endpoints come and go on all sides
// as do in an hour with one a second, as fast as the servers accept it.
func TestChurn_Hour(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	h := newHour(t)
	parent := func(s *hourService) string { return "/dubbo/" + s.iface + "/providers" }
	harness.Eventually(t, soon, "every service of the mesh is in both registries", func() error {
		for _, s := range h.inMesh {
			if len(h.znodes.Children(t, parent(s))) == 0 || len(h.provider.keys(t, s.iface)) == 0 {
				return fmt.Errorf("%s is not", s.iface)
			}
		}
		return nil
	})
	imports, parents := make(map[*hourService]*harness.EndpointsWatch), make(map[*hourService]*harness.ChildrenWatch)
	for n := range hourServices {
		for name, s := range map[string]*hourService{"zk": h.inZooKeeper[n], "nacos": h.inNacos[n]} {
			imports[s] = harness.WatchEndpoints(t, h.istiod.GRPC, importedCluster(name, s.iface))
			imports[s].AwaitPush(t, soon, addresses(s.ports())...)
		}
		parents[h.inMesh[n]] = h.znodes.Watch(t, parent(h.inMesh[n]))
	}

	random := rand.New(rand.NewPCG(3, 600))
	for i := range 3600 {
		h.event(t, random)
		if i%100 != 0 {
			continue
		}
		for _, s := range h.inMesh {
			if keys := h.provider.keys(t, s.iface); !slices.Contains(keys, addresses([]int{s.base})[0]) {
				t.Errorf("after %d events Nacos lacks the endpoint of %s that stays: %v", i, s.iface, keys)
			}
		}
	}

	t.Run("every side has what the others provide", func(t *testing.T) {
		for s, watch := range imports {
			watch.AwaitPush(t, time.Minute, addresses(s.ports())...)
		}
		for _, s := range h.inMesh {
			harness.Eventually(t, time.Minute, s.iface+" in both registries", func() error {
				if err := harness.Same(entryAddresses(h.znodes.Children(t, parent(s))), addresses(s.ports())); err != nil {
					return err
				}
				return harness.Same(slices.Sorted(slices.Values(h.provider.keys(t, s.iface))), addresses(s.ports()))
			})
		}
	})
	t.Run("what stayed was never missed", func(t *testing.T) {
		lists := make(map[*hourService][]harness.Seen)
		for s, watch := range imports {
			lists[s] = watch.Lists()
		}
		for s, watch := range parents {
			lists[s] = watch.Lists()
		}
		for s, all := range lists {
			for _, seen := range all {
				if stays := addresses([]int{s.base})[0]; !slices.Contains(seen.Addresses, stays) {
					t.Errorf("%s: %s was missing among %v", s.iface, stays, seen.Addresses)
				}
			}
		}
	})
	t.Run("nothing went round", func(t *testing.T) {
		own := func() string {
			var all []string
			for n := range hourServices {
				all = append(all, h.znodes.Children(t, parent(h.inZooKeeper[n]))...)
				all = append(all, h.provider.keys(t, h.inNacos[n].iface)...)
			}
			return strings.Join(all, "\n")
		}
		harness.Unchanged(t, "the services of either registry in it", own)
		for n := range hourServices {
			s := h.inZooKeeper[n]
			var want []string
			for _, port := range s.ports() {
				want = append(want, strings.TrimPrefix(registered(s.iface, port), parent(s)+"/"))
			}
			slices.Sort(want)
			if err := harness.Same(slices.Sorted(slices.Values(h.znodes.Children(t, parent(s)))), want); err != nil {
				t.Errorf("%s in ZooKeeper: %v", s.iface, err)
			}
			s = h.inNacos[n]
			if err := harness.Same(slices.Sorted(slices.Values(h.provider.keys(t, s.iface))), addresses(s.ports())); err != nil {
				t.Errorf("%s in Nacos: %v", s.iface, err)
			}
		}
		for _, s := range h.inMesh {
			for _, name := range h.znodes.Children(t, parent(s)) {
				if text, _ := url.QueryUnescape(name); strings.Contains(text, "bridge.internal") {
					t.Errorf("%s came into ZooKeeper as an import of the mesh: %s", s.iface, text)
				}
			}
		}
	})
}
