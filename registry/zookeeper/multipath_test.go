package zookeeper_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

var (
	_ zookeeper.MultiPath       = (*dubbo.ZooKeeperApp)(nil)
	_ zookeeper.Exclusive       = (*dubbo.ZooKeeperApp)(nil)
	_ zookeeper.HasDependencies = (*dubbo.ZooKeeperApp)(nil)
)

func applications(t testing.TB) *dubbo.ZooKeeperApp {
	t.Helper()
	z, err := dubbo.NewZooKeeperApp(dubbo.Options{Mark: metadata.NewMark(owner, "b")})
	must(t, err)
	return z
}

// shop is the application of these tests, of two interfaces.
func shop(t testing.TB, weight uint32, hosts ...string) []registry.Entry {
	t.Helper()
	s := &registry.Service{Name: "shop.ns.svc.cluster.local:1", Interfaces: []registry.Interface{{Name: "api.A"}, {Name: "api.B"}}}
	for _, h := range hosts {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: h, Port: 1, Weight: weight})
	}
	entries, err := applications(t).Encode(s)
	must(t, err)
	return entries
}

func withApplications(t testing.TB) func(*zookeeper.TargetOptions) {
	t.Helper()
	return func(o *zookeeper.TargetOptions) { o.Layouts = []zookeeper.Layout{applications(t)} }
}

// changeTo returns the change from the held to the desired entries.
func changeTo(held []registry.Stored, want []registry.Entry) registry.Change {
	return conformance.Change(want[0].Group, held, want)
}

func TestMultiPath_Application(t *testing.T) {
	server := serve(t)
	target := target(t, dial(t, server), withApplications(t))
	must(t, server.Put("/dubbo/mapping/api.A", []byte("other")))
	want := shop(t, 1, "10.0.0.1", "10.0.0.2")
	g := want[0].Group
	write(t, target, changeTo(nil, want))
	held := read(t, target, g)
	var got []registry.Entry
	for _, h := range held {
		got = append(got, h.Entry)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Read =\n%v\nwant\n%v", got, want)
	}
	for path, data := range map[string]string{"/dubbo/mapping/api.A": "other,shop", "/dubbo/mapping/api.B": "shop"} {
		if n, ok := server.Get(path); !ok || string(n.Data) != data {
			t.Errorf("node %s = %q, want %q", path, n.Data, data)
		}
	}
	next := shop(t, 5, "10.0.0.1", "10.0.0.2")
	write(t, target, changeTo(held, next))
	if again := changeTo(read(t, target, g), next); !again.Empty() {
		t.Errorf("change after a write = %+v, want none", again)
	}
	write(t, target, registry.Change{Group: g, Delete: read(t, target, g)})
	if left := read(t, target, g); len(left) != 0 {
		t.Errorf("Read after the deletion = %v, want none", left)
	}
	if n, _ := server.Get("/dubbo/mapping/api.A"); string(n.Data) != "other,shop" {
		t.Errorf("list after the deletion = %q, want other,shop", n.Data)
	}
}

func TestMultiPath_RemovedElement(t *testing.T) {
	server := serve(t)
	target := target(t, dial(t, server), withApplications(t))
	want := shop(t, 1, "10.0.0.1")
	write(t, target, changeTo(nil, want))
	must(t, server.Put("/dubbo/mapping/api.A", []byte("other")))
	c := changeTo(read(t, target, want[0].Group), want)
	if len(c.Put) != 1 || c.Put[0].New.Key != "#mapping/api.A" {
		t.Fatalf("change = %+v, want only the element", c)
	}
	write(t, target, c)
	if n, _ := server.Get("/dubbo/mapping/api.A"); string(n.Data) != "other,shop" {
		t.Errorf("list = %q, want other,shop", n.Data)
	}
}

func TestExclusive_ConcurrentFormat(t *testing.T) {
	for name, data := range map[string]string{
		"Spring Cloud": `{"name":"shop","id":"u","address":"10.0.0.9","port":80,"payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"shop","name":"shop","metadata":{}}}`,
		"garbage":      "garbage",
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t)
			target := target(t, dial(t, server), withApplications(t))
			must(t, server.Put("/services/shop/u", []byte(data)))
			want := shop(t, 1, "10.0.0.1")
			for _, when := range []string{"unread", "read"} {
				if err := target.Write(t.Context(), changeTo(nil, want)); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), `"u"`) {
					t.Errorf("%s: Write = %v, want a refusal that names the node u", when, err)
				}
				if _, ok := server.Get("/services/shop/10.0.0.1:1"); ok {
					t.Errorf("%s: the instance was written, want no node", when)
				}
				if n, ok := server.Get("/dubbo/mapping/api.A"); ok {
					t.Errorf("%s: mapping = %q, want none", when, n.Data)
				}
				read(t, target, want[0].Group)
			}
		})
	}
}

// askerFunc is an Asker whose answers belong to one document each.
type askerFunc func(ctx context.Context, ref metadata.Ref) (string, error)

func (a askerFunc) Ask(ctx context.Context, ref metadata.Ref) (string, error) { return a(ctx, ref) }

func (askerFunc) Question(metadata.Ref) string { return "" }

// runApplications runs a source of applications until the test ends.
func runApplications(t *testing.T, s *zkfake.Server, asker dependency.Asker) *registry.Table {
	t.Helper()
	conn := zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial, SessionTimeout: 10 * time.Second}
	source, err := zookeeper.NewSource(conn, zookeeper.SourceOptions{Formats: []zookeeper.Format{applications(t)}, Asker: asker})
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

const (
	document     = `{"app":"shop","revision":"r1","services":{"api.A:tri":{"name":"api.A","path":"api.A","protocol":"tri","params":{}}}}`
	shopInstance = `{"name":"shop","id":"10.0.0.1:1","address":"10.0.0.1","port":1,"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance",` +
		`"id":"10.0.0.1:1","name":"shop","metadata":{"dubbo.metadata.revision":"r1","dubbo.metadata.storage-type":"remote"}}}`
)

func localInstance(address string) string {
	return strings.NewReplacer("10.0.0.1", address, `"dubbo.metadata.storage-type":"remote"`,
		`"dubbo.metadata.storage-type":"local","dubbo.metadata-service.url-params":"{\"port\":\"9\",\"protocol\":\"tri\",\"version\":\"2.0.0\"}"`).Replace(shopInstance)
}

func TestSource_ReadsDocumentsOfInstances(t *testing.T) {
	for name, at := range map[string]string{"Java's place": "/dubbo/metadata/shop/r1", "dubbo-go's place": "/dubbo/shop/r1"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := serve(t)
				must(t, server.Put(at, []byte(document)))
				must(t, server.Put("/services/shop/10.0.0.1:1", []byte(shopInstance)))
				table := runApplications(t, server, nil)
				time.Sleep(time.Second)
				if got := published(table); !slices.Equal(got, []string{"api.A=10.0.0.1:1"}) {
					t.Errorf("reported %v, skipped %v, want api.A=10.0.0.1:1", got, table.Skipped())
				}
			})
		})
	}
}

func TestSource_LateDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serve(t)
		must(t, server.Put("/services/shop/10.0.0.1:1", []byte(shopInstance)))
		table := runApplications(t, server, nil)
		time.Sleep(time.Second)
		_, known := table.Snapshot()
		if len(published(table)) != 0 || len(table.Skipped()) != 1 || known.Of("dubbo-application:/services/shop/providers:api.A::") == nil {
			t.Errorf("reported %v, skipped %v, unknown %v, want api.A unknown and one input skipped", published(table), table.Skipped(), known.Unknown)
		}
		must(t, server.Put("/dubbo/metadata/shop/r1", []byte(document)))
		time.Sleep(time.Second)
		_, known = table.Snapshot()
		if got := published(table); !slices.Equal(got, []string{"api.A=10.0.0.1:1"}) || len(table.Skipped()) != 0 || len(known.Unknown) != 0 {
			t.Errorf("reported %v, skipped %v, unknown %v, want api.A=10.0.0.1:1", got, table.Skipped(), known.Unknown)
		}
	})
}

// revisions is an Asker whose answers are those of all instances of an application.
type revisions struct{ askerFunc }

func (revisions) Question(ref metadata.Ref) string { return ref.Group.Name }

// TestSource_RemovedProvider: any provider may register with the
// registerApplication and the revision of others.
func TestSource_RemovedProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serve(t)
		must(t, server.Put("/services/shop/10.6.6.6:1", []byte(localInstance("10.6.6.6"))))
		table := runApplications(t, server, revisions{func(_ context.Context, ref metadata.Ref) (string, error) {
			if strings.Contains(ref.Key, "10.6.6.6") {
				return strings.ReplaceAll(document, "api.A", "api.Untrue"), nil
			}
			return document, nil
		}})
		time.Sleep(time.Second)
		must(t, server.Put("/services/shop/10.0.0.1:1", []byte(localInstance("10.0.0.1"))))
		must(t, server.Put("/services/shop/10.0.0.2:1", []byte(localInstance("10.0.0.2"))))
		time.Sleep(time.Second)
		if got := published(table); !slices.Equal(got, []string{"api.Untrue=10.0.0.1:1,10.0.0.2:1,10.6.6.6:1"}) {
			t.Errorf("reported %v, want api.Untrue of three instances", got)
		}
		if n := table.Usage().Bytes; n < int64(len(document)) {
			t.Errorf("Usage().Bytes = %d, want %d at least, with the answer", n, len(document))
		}
		server.Delete("/services/shop/10.6.6.6:1")
		time.Sleep(time.Second)
		if got := published(table); !slices.Equal(got, []string{"api.A=10.0.0.1:1,10.0.0.2:1", "api.Untrue="}) {
			t.Errorf("reported %v, want api.A of two instances and no api.Untrue", got)
		}
	})
}

func TestSource_UnresponsiveProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serve(t)
		must(t, server.Put("/services/shop/10.0.0.1:1", []byte(localInstance("10.0.0.1"))))
		must(t, server.Put("/services/shop/10.0.0.2:1", []byte(localInstance("10.0.0.2"))))
		answers := make(chan struct{})
		table := runApplications(t, server, askerFunc(func(_ context.Context, ref metadata.Ref) (string, error) {
			select {
			case <-answers:
				return document, nil
			default:
			}
			if strings.Contains(ref.Key, "10.0.0.2") {
				return "", errors.New("connection refused")
			}
			return document, nil
		}))
		time.Sleep(time.Second)
		_, known := table.Snapshot()
		if got := published(table); !slices.Equal(got, []string{"api.A=10.0.0.1:1"}) || known.Of("dubbo-application:/services/shop/providers:api.A::") == nil {
			t.Errorf("reported %v, unknown %v, want api.A=10.0.0.1:1, and unknown", got, known.Unknown)
		}
		if skipped := table.Skipped(); len(skipped) != 1 || !strings.Contains(skipped["dubbo-application:/services/shop 10.0.0.2:1"], "metadata-type=remote") {
			t.Errorf("Skipped() = %v, want a reason with the remedy", skipped)
		}
		close(answers)
		time.Sleep(15 * time.Second)
		_, known = table.Snapshot()
		if got := published(table); !slices.Equal(got, []string{"api.A=10.0.0.1:1,10.0.0.2:1"}) || len(known.Unknown) != 0 {
			t.Errorf("reported %v, unknown %v, want api.A of two instances", got, known.Unknown)
		}
	})
}

func TestTarget_ListChanges(t *testing.T) {
	for name, happens := range map[string]func(*zkfake.Server){
		"a document is deleted":    func(s *zkfake.Server) { s.Delete("/dubbo/metadata/shop/" + s.Children("/dubbo/metadata/shop")[0]) },
		"dubbo-go's documents go":  func(s *zkfake.Server) { s.Delete("/dubbo/shop") },
		"a list is deleted":        func(s *zkfake.Server) { s.Delete("/dubbo/mapping/api.A") },
		"a name is removed":        func(s *zkfake.Server) { _ = s.Put("/dubbo/mapping/api.B", []byte("other")) },
		"all lists of names go":    func(s *zkfake.Server) { s.Delete("/dubbo/mapping") },
		"everything is deleted":    func(s *zkfake.Server) { s.Delete("/dubbo"); s.Delete("/services") },
		"another's document comes": func(s *zkfake.Server) { _ = s.Put("/dubbo/metadata/shop/r1", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := serve(t)
				client := dial(t, server)
				defer client.Close()
				target := target(t, client, withApplications(t))
				want := shop(t, 1, "10.0.0.1")
				group := want[0].Group
				write(t, target, changeTo(nil, want))
				for range 2 {
					_ = watch(t, target, group)
					if got := target.Changes(); got != nil {
						t.Fatalf("Changes() = %v before a change, want none", got)
					}
				}
				happens(server)
				synctest.Wait()
				if got := target.Changes(); !slices.Equal(got, []registry.Group{group}) {
					t.Errorf("Changes() = %v, want %v once", got, group)
				}
			})
		})
	}
}
