package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/springcloud"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// threeFormats are formats with two roots, one of which two of them share.
func threeFormats(t testing.TB) []zookeeper.Format {
	t.Helper()
	interfaces, err := dubbo.NewZooKeeper(dubbo.Options{})
	must(t, err)
	cloud, err := springcloud.NewZooKeeper(instance.Options{Protocol: "http", Root: "/spring"})
	must(t, err)
	return []zookeeper.Format{interfaces, applications(t), cloud}
}

// runFormats runs a source until the test ends.
func runFormats(t *testing.T, s *zkfake.Server, tune ...func(*zookeeper.SourceOptions)) *registry.Table {
	t.Helper()
	opts := zookeeper.SourceOptions{Formats: threeFormats(t)}
	for _, f := range tune {
		f(&opts)
	}
	conn := zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial, SessionTimeout: 10 * time.Second, ReceiveLimit: receiveLimit}
	source, err := zookeeper.NewSource(conn, opts)
	must(t, err)
	table := registry.NewTable()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, table) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return table
}

// registerApplication stores an instance, and its interface: api.<application>.
func registerApplication(t *testing.T, s *zkfake.Server, app, ip, revision string) {
	t.Helper()
	must(t, s.Put("/dubbo/metadata/"+app+"/"+revision, report(app, revision)))
	registerInstance(t, s, app, ip, revision)
}

func report(app, revision string) []byte {
	return fmt.Appendf(nil, `{"app":%q,"revision":%q,"services":{"api.%[1]s:tri":{"name":"api.%[3]s","path":"api.%[3]s","protocol":"tri","params":{}}}}`, app, revision, app)
}

func registerInstance(t *testing.T, s *zkfake.Server, app, ip, revision string) {
	t.Helper()
	must(t, s.Put("/services/"+app+"/"+ip+":1", []byte(strings.NewReplacer("10.0.0.1", ip, "shop", app, `"r1"`, `"`+revision+`"`).Replace(shopInstance))))
}

func registerSpring(t *testing.T, s *zkfake.Server, app string, n int) {
	t.Helper()
	must(t, s.Put(fmt.Sprintf("/spring/%s/u%d", app, n), []byte(strings.ReplaceAll(fmt.Sprintf(springNode, n), "orders", app))))
}

// unknowns returns the scopes that cannot be known.
func unknowns(table *registry.Table) []string {
	return slices.Sorted(maps.Keys(certainty(table).Unknown))
}

var deniedToUs = zkfake.DigestACL(zkfake.PermAll, "someone", "else")

// TestSource_SharedDocument: applications of one name under two roots may have one document,
// which both wait for.
func TestSource_SharedDocument(t *testing.T) {
	inVirtualTime(t, "late", func(t *testing.T, s *zkfake.Server) {
		var both []zookeeper.Format
		for _, root := range []string{"/prod", "/gray"} {
			f, err := dubbo.NewZooKeeperApp(dubbo.Options{Root: root})
			must(t, err)
			both = append(both, f)
			must(t, s.Put(root+"/shop/10.0.0.1:1", []byte(shopInstance)))
		}
		table := runFormats(t, s, func(o *zookeeper.SourceOptions) { o.Formats = both })
		later(time.Minute)
		must(t, s.Put("/dubbo/metadata/shop/r1", report("shop", "r1")))
		later(time.Second)
		if rows, k := table.Snapshot(); len(rows) != 2 || len(k.Unknown) > 0 {
			t.Errorf("rows = %v, unknown %v, want one under each root", rows, k.Unknown)
		}
	})
}

// TestSource_DeniedRootOfPattern: what is unknown under a root is so by its names, whatever
// pattern of names is read there.
func TestSource_DeniedRootOfPattern(t *testing.T) {
	inVirtualTime(t, "denied", func(t *testing.T, s *zkfake.Server) {
		registerSpring(t, s, "orders", 1)
		must(t, s.SetACL("/spring", deniedToUs))
		cloud, err := springcloud.NewZooKeeper(instance.Options{Protocol: "http", Root: "/spring", Service: "order*"})
		must(t, err)
		table := runFormats(t, s, func(o *zookeeper.SourceOptions) { o.Formats = []zookeeper.Format{cloud} })
		later(time.Minute)
		if certainty(table).Of("spring-cloud:/spring/orders") == nil {
			t.Errorf("unknown = %q, want the services under /spring", unknowns(table))
		}
	})
}

// othersContinue fails the test unless everything that is not of a failing part is
// reported, known and followed.
func othersContinue(t *testing.T, s *zkfake.Server, table *registry.Table, failing ...string) {
	t.Helper()
	register(t, s, "api.live", "10.0.9.1:1")
	registerApplication(t, s, "live", "10.0.9.2", "r1")
	later(time.Minute)
	register(t, s, "api.live", "10.0.9.3:1")
	later(time.Minute)
	rows, k := table.Snapshot()
	if k.Stale != nil {
		t.Errorf("Stale = %v, want none: other parts can be read", k.Stale)
	}
	for scope := range k.Unknown {
		if !slices.ContainsFunc(failing, func(part string) bool { return strings.Contains(scope, part) }) {
			t.Errorf("Unknown[%q] = %v, want only scopes of %q", scope, k.Unknown[scope], failing)
		}
	}
	for name, endpoints := range map[registry.Name]int{
		"dubbo-interface:/dubbo/providers:api.live::": 2, "dubbo-application:/services/live/providers:api.live::": 1,
	} {
		if row := rows[name]; row == nil || len(row.Endpoints) != endpoints || k.Of(name) != nil {
			t.Errorf("row %s = %+v, %v, want %d endpoints, known", name, row, k.Of(name), endpoints)
		}
	}
}

func TestSource_DeniedPart(t *testing.T) {
	const api = registry.Name("dubbo-interface:/dubbo/providers:api.A::")
	for name, test := range map[string]func(t *testing.T, s *zkfake.Server, table *registry.Table){
		"a revision that is not a valid name": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			registerInstance(t, s, "shop", "10.6.6.6", "..")
			later(time.Minute)
			if why := table.Skipped()["dubbo-application:/services/shop 10.6.6.6:1"]; !strings.Contains(why, "..") {
				t.Errorf("reason of the skipped entry = %q, want one with ..", why)
			}
			othersContinue(t, s, table)
		},
		"a document that is denied": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			must(t, s.Put("/dubbo/metadata/secret/r1", report("secret", "r1")))
			must(t, s.SetACL("/dubbo/metadata/secret/r1", deniedToUs))
			registerInstance(t, s, "secret", "10.6.6.6", "r1")
			othersContinue(t, s, table, "/services/secret")
			if err := certainty(table).Of("dubbo-application:/services/secret/providers:api.secret::"); err == nil || !strings.Contains(err.Error(), "ACL") {
				t.Errorf("Of(api.secret) = %v, want an error of the ACL", err)
			}
			must(t, s.SetACL("/dubbo/metadata/secret/r1", zkfake.WorldACL(zkfake.PermAll)))
			later(31 * time.Second)
			if got := unknowns(table); len(got) > 0 {
				t.Errorf("unknown after it may be read = %q, want none", got)
			}
		},
		"a document that is late, of which the provider runs": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			const shop = registry.Name("dubbo-application:/services/shop/providers:api.shop::")
			registerInstance(t, s, "shop", "10.0.0.2", "r2")
			later(6 * time.Minute) // meanwhile everything is read again
			if err := certainty(table).Of(shop); err == nil || !strings.Contains(err.Error(), "metadata/r2, tried since") {
				t.Errorf("Of(api.shop) = %v, want the path and since when it is tried", err)
			}
			othersContinue(t, s, table, "/services/shop")
			must(t, s.Put("/dubbo/shop/r2", nil)) // where dubbo-go stores it; the data comes after the node
			later(time.Second)
			if certainty(table).Of(shop) == nil {
				t.Error("Of(api.shop) = nil with an empty document, want it unknown")
			}
			must(t, s.Put("/dubbo/shop/r2", report("shop", "r2")))
			later(time.Second)
			if row := table.Get(shop); len(row.Endpoints) != 2 || certainty(table).Of(shop) != nil {
				t.Errorf("row = %+v, %v, want 2 endpoints, known", row, certainty(table).Of(shop))
			}
		},
		"a new revision of a provider that can never be had": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			const shop = registry.Name("dubbo-application:/services/shop/providers:api.shop::")
			must(t, s.Put("/services/shop/10.0.0.1:1", []byte(localInstance("10.0.0.1")))) // no provider is asked
			for range 3 {
				othersContinue(t, s, table, "/services/shop")
				if err := certainty(table).Of(shop); err == nil || !strings.Contains(err.Error(), "providers are not called here") {
					t.Errorf("Of(api.shop) = %v, want that providers are not called", err)
				}
			}
			s.DropConnections()
			othersContinue(t, s, table, "/services/shop")
			if table.Get(shop) == nil || certainty(table).Of(shop) == nil {
				t.Errorf("over a new connection: row = %+v, %v, want it kept and unknown", table.Get(shop), certainty(table).Of(shop))
			}
			must(t, s.Put("/services/never/10.0.0.7:1", []byte(strings.ReplaceAll(localInstance("10.0.0.7"), "shop", "never"))))
			othersContinue(t, s, table, "/services/shop") // services that were never seen are left out
			registerInstance(t, s, "shop", "10.0.0.1", "r1")
			later(time.Minute)
			if got := unknowns(table); len(got) > 0 {
				t.Errorf("unknown after it may be read = %q, want none", got)
			}
		},
		"a root that is denied": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			must(t, s.SetACL("/spring", deniedToUs))
			registerSpring(t, s, "cart", 3)
			othersContinue(t, s, table, "spring-cloud:/spring/")
			if certainty(table).Of("spring-cloud:/spring/cart") == nil {
				t.Error("Of(cart) = nil before the root was listed, want it unknown")
			}
			registerSpring(t, s, "orders", 4) // its own parent may be read
			must(t, s.SetACL("/spring", zkfake.WorldACL(zkfake.PermAll)))
			later(20 * time.Second)
			if rows, k := table.Snapshot(); len(k.Unknown) > 0 || rows["spring-cloud:/spring/cart"] == nil || len(rows["spring-cloud:/spring/orders"].Endpoints) != 3 {
				t.Errorf("rows = %v, unknown %v, want cart, 3 endpoints of orders and none unknown", rows, k.Unknown)
			}
		},
		"a root that is denied from the start of a connection": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			must(t, s.SetACL("/spring", deniedToUs))
			s.DropConnections()
			othersContinue(t, s, table, "spring-cloud:/spring/")
			if row := table.Get("spring-cloud:/spring/orders"); len(row.Endpoints) != 2 {
				t.Errorf("row = %+v, want 2 endpoints as before", row)
			}
		},
		"a root of which the list is larger than an answer may be": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			mend := oversize(t, s, "/spring")
			othersContinue(t, s, table, "spring-cloud:/spring/")
			if err := certainty(table).Of("spring-cloud:/spring/orders"); err == nil || !strings.Contains(err.Error(), "limits.maxReceive") {
				t.Errorf("Of(orders) = %v, want an error of the limit", err)
			}
			s.DropConnections()
			othersContinue(t, s, table, "spring-cloud:/spring/")
			mend()
			later(20 * time.Second)
			if got := unknowns(table); len(got) > 0 {
				t.Errorf("unknown after it may be read = %q, want none", got)
			}
		},
		"a parent with a list larger than an answer may be": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			mend := oversize(t, s, "/spring/orders")
			var mu sync.Mutex
			lists := 0
			s.SetFault(func(r zkfake.Request) zkfake.Fault {
				mu.Lock()
				defer mu.Unlock()
				if slices.Contains(r.Paths, "/spring/orders") {
					lists++
				}
				return zkfake.Fault{}
			})
			later(time.Hour)
			mu.Lock()
			if lists < 30 || lists > 80 { // it is large, so that each costs much
				t.Errorf("lists in an hour = %d, want 30 to 80", lists)
			}
			mu.Unlock()
			othersContinue(t, s, table, "spring-cloud:/spring/orders")
			mend()
			later(2 * time.Minute)
			if got := unknowns(table); len(got) > 0 {
				t.Errorf("unknown after it may be read = %q, want none", got)
			}
		},
		"a root that was deleted like a container node": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			s.Delete("/spring/orders/u1")
			s.Delete("/spring/orders/u2")
			later(time.Minute)
			s.Delete("/spring/orders")
			later(time.Minute)
			s.Delete("/spring")
			othersContinue(t, s, table, "spring-cloud:/spring/")
			registerSpring(t, s, "orders", 5)
			later(time.Second)
			if rows, k := table.Snapshot(); len(k.Unknown) > 0 || len(rows["spring-cloud:/spring/orders"].Endpoints) != 1 {
				t.Errorf("rows = %v, unknown %v, want 1 endpoint of orders and none unknown", rows, k.Unknown)
			}
		},
		"a root that was deleted at once": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			s.Delete("/spring")
			othersContinue(t, s, table, "spring-cloud:/spring/")
			if row := table.Get("spring-cloud:/spring/orders"); len(row.Endpoints) != 2 {
				t.Errorf("row = %+v, want 2 endpoints as before", row)
			}
		},
		"a root that is deleted while its parents are being read": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			arrived := make(chan struct{})
			var once bool
			s.SetFault(func(r zkfake.Request) zkfake.Fault {
				if !once && len(r.Paths) == 1 && r.Paths[0] == "/spring/orders" {
					once = true
					close(arrived)
					return zkfake.Fault{Delay: time.Second}
				}
				return zkfake.Fault{}
			})
			<-arrived // everything is read again
			s.Delete("/spring")
			othersContinue(t, s, table, "spring-cloud:/spring/")
			if row := table.Get("spring-cloud:/spring/orders"); row == nil || len(row.Endpoints) != 2 {
				t.Errorf("row = %+v, want 2 endpoints as before", row)
			}
		},
		"a node that is denied": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			must(t, s.Put("/spring/orders/u7", nil))
			must(t, s.SetACL("/spring/orders/u7", deniedToUs))
			registerSpring(t, s, "orders", 3)
			othersContinue(t, s, table, "spring-cloud:/spring/orders")
			if row := table.Get("spring-cloud:/spring/orders"); len(row.Endpoints) != 3 {
				t.Errorf("row = %+v, want 3 endpoints: other nodes are followed", row)
			}
			must(t, s.SetACL("/spring/orders/u7", zkfake.WorldACL(zkfake.PermAll)))
			registerSpring(t, s, "orders", 7)
			later(20 * time.Second)
			if row := table.Get("spring-cloud:/spring/orders"); len(row.Endpoints) != 4 || len(unknowns(table)) > 0 {
				t.Errorf("row = %+v, unknown %q, want 4 endpoints and none unknown", row, unknowns(table))
			}
		},
		"a denied parent that was deleted without a connection": func(t *testing.T, s *zkfake.Server, table *registry.Table) {
			must(t, s.Put(providers("api.A")+"/not%20a%20url", nil))
			later(time.Second)
			must(t, s.SetACL(providers("api.A"), deniedToUs))
			register(t, s, "api.A", "10.0.0.9:1")
			later(time.Minute)
			if k := certainty(table); k.Of(api) == nil || len(table.Skipped()) != 1 {
				t.Fatalf("certainty = %+v, skipped %v, want api.A unknown and one input skipped", k, table.Skipped())
			}
			s.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{Cut: zkfake.CutBefore} })
			s.DropConnections()
			later(time.Second)
			s.Delete("/dubbo/api.A")
			s.SetFault(nil)
			later(time.Minute)
			othersContinue(t, s, table)
			if table.Get(api) != nil || len(table.Skipped()) > 0 {
				t.Errorf("row = %+v, skipped %v, want neither", table.Get(api), table.Skipped())
			}
		},
	} {
		inVirtualTime(t, name, func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1")
			registerApplication(t, s, "shop", "10.0.0.1", "r1")
			registerSpring(t, s, "orders", 1)
			registerSpring(t, s, "orders", 2)
			table := runFormats(t, s)
			later(time.Second)
			if rows, k := table.Snapshot(); len(rows) != 3 || !k.Synced || k.Stale != nil || len(k.Unknown) > 0 {
				t.Fatalf("%d services, certainty %+v, want 3, synced and none unknown", len(rows), k)
			}
			test(t, s, table)
		})
	}
}

func TestSource_UnresponsiveProviders(t *testing.T) {
	inVirtualTime(t, "200 of them", func(t *testing.T, s *zkfake.Server) {
		for i := range 200 {
			ip := fmt.Sprintf("10.1.0.%d", i)
			must(t, s.Put(fmt.Sprintf("/services/dead%d/%s:1", i, ip), []byte(strings.ReplaceAll(localInstance(ip), "shop", fmt.Sprint("dead", i)))))
		}
		registerApplication(t, s, "shop", "10.0.0.1", "r1")
		began := time.Now()
		table := runFormats(t, s, func(o *zookeeper.SourceOptions) {
			o.Asker = askerFunc(func(ctx context.Context, _ metadata.Ref) (string, error) { // like an address that drops packets
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				<-ctx.Done()
				return "", errors.New("no answer")
			})
		})
		for !certainty(table).Synced {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("first report after %v, want 11 s at most", took)
		}
		wantReported(t, table, "api.shop=10.0.0.1:1")
		later(time.Minute)
		register(t, s, "api.A", "10.0.0.3:1")
		registerApplication(t, s, "cart", "10.0.0.4", "r1")
		later(100 * time.Millisecond)
		wantReported(t, table, "api.A=10.0.0.3:1", "api.cart=10.0.0.4:1", "api.shop=10.0.0.1:1")
		if got := unknowns(table); len(got) != 200 {
			t.Errorf("unknown = %d, want 200", len(got))
		}
	})
}
