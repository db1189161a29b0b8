package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/cloudwego"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/kratos"
	"github.com/xds-bridge/xds-bridge/metadata/plain"
	"github.com/xds-bridge/xds-bridge/metadata/springcloud"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

var (
	_ zookeeper.Named     = (*instance.ZooKeeper)(nil)
	_ zookeeper.Exclusive = (*instance.ZooKeeper)(nil)
)

const (
	springNode = `{"name":"orders","id":"7d","address":"10.0.0.%d","port":8080,"sslPort":null,"payload":{"@class":` +
		`"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"orders","name":"orders","metadata":{"instance_status":"UP"}}}`
	dubboNode = `{"name":"stock","id":"x","address":"10.0.0.9","port":9,"payload":{"@class":` +
		`"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"x","name":"stock","metadata":{}}}`
	kratosNode = `{"id":"k1","name":"users","version":"v1","metadata":null,"endpoints":["grpc://10.0.0.3:9000"]}`
)

// allFormats is every format that reads ZooKeeper, and one more under a root
// that another has.
func allFormats(t *testing.T) []zookeeper.Format {
	t.Helper()
	interfaces, err := dubbo.NewZooKeeper(dubbo.Options{})
	must(t, err)
	formats := []zookeeper.Format{interfaces}
	for _, f := range []struct {
		root string
		how  func(instance.Options) (*instance.ZooKeeper, error)
	}{
		{"/services", springcloud.NewZooKeeper},
		{"/microservices", kratos.NewZooKeeper},
		{"/", cloudwego.NewZooKeeper(cloudwego.Hertz)},
		{"/services", plain.NewZooKeeper},
	} {
		z, err := f.how(instance.Options{Root: f.root, Protocol: "tcp"})
		must(t, err)
		formats = append(formats, z)
	}
	return formats
}

// runAllFormats runs a source of every format until the test ends.
func runAllFormats(t *testing.T, s *zkfake.Server) *registry.Table {
	t.Helper()
	conn := zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial, SessionTimeout: 10 * time.Second}
	source, err := zookeeper.NewSource(conn, zookeeper.SourceOptions{Formats: allFormats(t)})
	must(t, err)
	table := registry.NewTable()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, table) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	return table
}

// named returns what a table holds: the names of services and their addresses.
func named(table *registry.Table) string {
	rows, _ := table.Snapshot()
	var out []string
	for _, s := range rows {
		words := []string{string(s.Name)}
		for _, e := range s.Endpoints {
			words = append(words, e.Address())
		}
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestSource_SeveralFormatsInOneTree shows that each entry is reported by its format,
// and one of no format is skipped.
func TestSource_SeveralFormatsInOneTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		register(t, s, "api.A", "10.0.0.1:20880")
		must(t, s.Put("/services/orders/7d", fmt.Appendf(nil, springNode, 2)))
		must(t, s.Put("/services/stock/x", []byte(dubboNode)))
		must(t, s.Put("/services/orders/bad", []byte("garbage")))
		must(t, s.Put("/microservices/users/k1", []byte(kratosNode)))
		must(t, s.Put("/web/10.0.0.4:80", []byte(`{"Weight":10,"Tags":{}}`)))
		must(t, s.Put("/web/10.0.0.5:80", nil))
		table := runAllFormats(t, s)
		later(time.Second)
		want := "dubbo-interface:/dubbo/providers:api.A:: 10.0.0.1:20880\n" +
			"hertz://web 10.0.0.4:80\n" +
			"kratos:/microservices/users 10.0.0.3:9000\n" +
			"spring-cloud:/services/orders 10.0.0.2:8080"
		if got := named(table); got != want {
			t.Errorf("reported\n%s\nwant\n%s", got, want)
		}
		for key, part := range map[string]string{
			"spring-cloud:/services/orders bad": "not JSON",
			"spring-cloud:/services/stock x":    "org.apache.dubbo",
			"hertz://web 10.0.0.5:80":           "not JSON",
			"plain:/services/orders 7d":         "not host:port",
		} {
			if got := table.Skipped()[key]; !strings.Contains(got, part) {
				t.Errorf("Skipped()[%q] = %q, want a reason with %q; all: %v", key, got, part, table.Skipped())
			}
		}
		must(t, s.Put("/services/orders/7d", fmt.Appendf(nil, springNode, 6)))
		must(t, s.Put("/services/10.0.0.7:1/10.0.0.8:1", nil)) // a plain service next to those of Spring Cloud
		s.Delete("/web/10.0.0.4:80")
		later(time.Second)
		want = "dubbo-interface:/dubbo/providers:api.A:: 10.0.0.1:20880\n" +
			"hertz://web\n" +
			"kratos:/microservices/users 10.0.0.3:9000\n" +
			"plain:/services/10.0.0.7:1 10.0.0.8:1\n" +
			"spring-cloud:/services/orders 10.0.0.6:8080"
		if got := named(table); got != want {
			t.Errorf("reported\n%s\nwant\n%s", got, want)
		}
	})
}

// TestExclusive_ForeignFormat: one of our nodes in a parent of
// Dubbo's application-level discovery would keep its consumers from starting.
// Our entries there may still be deleted.
func TestExclusive_ForeignFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		c := dial(t, s)
		z, err := springcloud.NewZooKeeper(instance.Options{
			Root: "/services", Protocol: "http", Mark: metadata.NewMark(owner, "b"),
		})
		must(t, err)
		spring := target(t, c, func(o *zookeeper.TargetOptions) { o.Layouts = []zookeeper.Layout{z} })
		entries, err := z.Encode(&registry.Service{Name: "stock.shop:80", Application: "stock", Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 80}}})
		must(t, err)
		g := entries[0].Group
		read(t, spring, g)
		write(t, spring, creation(entries...))
		if got := s.Children("/services/stock"); !slices.Equal(got, []string{"xdsb-10.0.0.1:80"}) {
			t.Fatalf("nodes after the write = %q, want xdsb-10.0.0.1:80", got)
		}
		must(t, s.Put("/services/stock/x", []byte(dubboNode)))
		held := read(t, spring, g)
		more := entries[0]
		more.Key = "10.0.0.2:80"
		err = spring.Write(t.Context(), creation(more))
		if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "org.apache.dubbo") {
			t.Errorf("Write next to a node of another format = %v, want a refusal that names the format", err)
		}
		ours := slices.IndexFunc(held, func(h registry.Stored) bool { return h.Owner != "" })
		write(t, spring, registry.Change{Group: g, Delete: held[ours : ours+1]})
		if got := s.Children("/services/stock"); !slices.Equal(got, []string{"x"}) {
			t.Errorf("nodes after the deletion = %q, want x", got)
		}
		s.Delete("/services/stock/x")
		read(t, spring, g)
		write(t, spring, creation(entries...))
	})
}

// TestNamed_ForeignData shows that a format whose services are at the top
// runSource only the names of other nodes there.
func TestNamed_ForeignData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		for i := range 50 {
			must(t, s.Put(fmt.Sprintf("/else/where-%d", i), []byte("x")))
		}
		z, err := cloudwego.NewZooKeeper(cloudwego.Kitex)(instance.Options{Root: "/", Protocol: "thrift"})
		must(t, err)
		kitex := target(t, dial(t, s), func(o *zookeeper.TargetOptions) { o.Layouts = []zookeeper.Layout{z} })
		groups, err := kitex.Groups(t.Context())
		must(t, err)
		before := s.Count(zkfake.OpGetData)
		for _, g := range groups {
			for _, h := range read(t, kitex, g) {
				if h.Owner != "" {
					t.Errorf("Read = %v, want no owner", h)
				}
			}
		}
		if n := s.Count(zkfake.OpGetData) - before; n > 2 { // whether our entries may be ephemeral
			t.Errorf("nodes read = %d, want 2 at most", n)
		}
	})
}
