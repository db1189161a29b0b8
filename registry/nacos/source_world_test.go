package nacos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc/test/bufconn"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

var _ nacos.Format = (*dubbo.Nacos)(nil)

// A readRig is a server in memory, a source that reads it and its table.
type readRig struct {
	server  *nacosfake.Server
	source  *nacos.Source
	table   *registry.Table
	stop    func()
	down    atomic.Bool  // the server cannot be reached
	refused atomic.Int32 // attempts to reach it then
	rpc     *bufconn.Listener
	web     *bufconn.Listener
}

// tuneFunc changes how a source is made.
type tuneFunc func(*nacos.Options, *nacos.SourceOptions)

// newReadRig serves, and reads with all that is given. The source ends with
// the test.
func newReadRig(t *testing.T, tune ...tuneFunc) *readRig {
	t.Helper()
	r := &readRig{server: nacosfake.NewServer(), table: registry.NewTable(), rpc: bufconn.Listen(1 << 20), web: bufconn.Listen(1 << 20)}
	r.server.Serve(r.rpc, r.web)
	t.Cleanup(func() { r.server.Close() })
	codec, err := dubbo.NewNacos(dubbo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := nacos.Options{Servers: []string{"http://nacos:8848"}, Dialer: r.dial}
	so := nacos.SourceOptions{Formats: []nacos.Format{codec}}
	for _, f := range tune {
		f(&o, &so)
	}
	if r.source, err = nacos.NewSource(o, so); err != nil {
		t.Fatal(err)
	}
	return r
}

// run starts the source, which ends with the test. It asks at moments at which no
// test registers anything: of one millisecond, stamps do not show what is newer.
func (r *readRig) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		time.Sleep(7 * time.Millisecond)
		done <- r.source.Run(ctx, r.table)
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
}

func (r *readRig) dial(ctx context.Context, _, address string) (net.Conn, error) {
	switch {
	case r.down.Load():
		r.refused.Add(1)
		return nil, errors.New("connection refused")
	case strings.HasSuffix(address, ":9848"):
		return r.rpc.DialContext(ctx)
	}
	return r.web.DialContext(ctx)
}

// restart replaces the server by one without data.
func (r *readRig) restart() {
	r.server.Close()
	r.server, r.rpc, r.web = nacosfake.NewServer(), bufconn.Listen(1<<20), bufconn.Listen(1<<20)
	r.server.Serve(r.rpc, r.web)
}

func named(iface string) nacosfake.Service {
	return nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:" + iface + "::"}
}

// instanceOf is what a Dubbo provider registers.
func instanceOf(iface, ip string, change ...func(*model.Instance)) model.Instance {
	in := model.Instance{
		Ip: ip, Port: 20000, Weight: 1, Healthy: true, Enable: true, Ephemeral: true, ClusterName: "DEFAULT",
		Metadata: map[string]string{"protocol": "tri", "path": iface, "interface": iface, "side": "provider"},
	}
	for _, f := range change {
		f(&in)
	}
	return in
}

// register makes addresses all that providers of an interface register.
func (r *readRig) register(iface string, ips ...string) { r.registerAt(named(iface), iface, ips...) }

func (r *readRig) registerAt(sv nacosfake.Service, iface string, ips ...string) {
	var all []model.Instance
	for _, ip := range ips {
		all = append(all, instanceOf(iface, ip))
	}
	r.server.Set(sv, "providers", all...)
}

// reports fails the test unless the table holds these services, each an
// interface and its hosts.
func (r *readRig) reports(t *testing.T, want ...string) {
	t.Helper()
	if got := r.rows(); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func (r *readRig) rows() []string {
	rows, _ := r.table.Snapshot()
	var out []string
	for _, s := range rows {
		var hosts []string
		for _, e := range s.Endpoints {
			host := e.Host
			if !e.Health.Offered() {
				host += "(" + e.Health.String() + ")"
			}
			hosts = append(hosts, host)
		}
		out = append(out, s.Interfaces[0].Name+"="+strings.Join(hosts, ","))
	}
	slices.Sort(out)
	return out
}

func (r *readRig) tableState() registry.Certainty {
	_, k := r.table.Snapshot()
	return k
}

// fresh fails the test unless everything is known.
func (r *readRig) fresh(t *testing.T) {
	t.Helper()
	if k := r.tableState(); !k.Synced || k.Stale != nil || len(k.Unknown) > 0 {
		t.Errorf("state of the table %+v, want one that is synced with nothing unknown", k)
	}
}

// unknown returns the interfaces of the rows that cannot be known.
func (r *readRig) unknown() []string {
	rows, k := r.table.Snapshot()
	out := make(map[string]bool)
	for name, s := range rows {
		if k.Of(name) != nil {
			out[s.Interfaces[0].Name] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// later lets virtual time pass.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// refuse fails requests of a type for services that a name is part of.
func refuse(kind, part string, code int) nacosfake.Fault {
	return func(r nacosfake.Request) (int, string) {
		if r.Type == kind && strings.Contains(string(r.Body), part) {
			return code, "refused by the test"
		}
		return 0, ""
	}
}

func services(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("api.S%05d", i)
	}
	return out
}
