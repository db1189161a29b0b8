package nacos_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// A cluster is a source that reads one of two servers, and the other one.
type cluster struct {
	*readRig
	reader *registry.Reader
	other  *nacosfake.Server
}

// newCluster returns a cluster of which both servers hold the same, read.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{other: nacosfake.NewServer()}
	rpc := bufconn.Listen(1 << 20)
	c.other.Serve(rpc, nil)
	t.Cleanup(c.other.Close)
	first := ""
	c.readRig = newReadRig(t, func(o *nacos.Options, _ *nacos.SourceOptions) {
		o.Servers = []string{"http://nacos-a:8848", "http://nacos-b:8848"}
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			if first == "" {
				first = address // whichever the source begins with
			}
			if address == first {
				return dial(ctx, network, address)
			}
			return rpc.DialContext(ctx)
		}
	})
	two(c.readRig)
	two(&readRig{server: c.other})
	c.run(t)
	later(time.Second)
	c.reader = c.table.Reader()
	c.reader.Drain()
	return c
}

// lost lets time pass and returns how often meanwhile a row went, or api.A lost
// an endpoint.
func (c *cluster) lost(d time.Duration) (n int) {
	const look = 50 * time.Millisecond
	for began := time.Now(); time.Since(began) < d; later(look) {
		for name, row := range c.reader.Drain().Rows {
			if row.Service == nil || strings.Contains(string(name), "api.A") && len(row.Service.Endpoints) < 2 {
				n++
			}
		}
	}
	return n
}

// TestSource_Recheck: everything is read again from another server, over
// a new connection, and nothing else counts as that.
func TestSource_Recheck(t *testing.T) {
	bubble(t, "ten minutes of reading in turn are no new connection", func(t *testing.T) {
		c := newCluster(t)
		later(10 * time.Minute)
		if k := c.tableState(); k.Dials != 1 {
			t.Errorf("%d full readings over new connections, want only the first", k.Dials)
		}
	})
	bubble(t, "another server is read whole, and counts", func(t *testing.T) {
		c := newCluster(t)
		c.server.Forget() // and so reports nothing
		later(10 * time.Second)
		c.reports(t)
		c.source.Recheck()
		later(time.Second)
		c.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
		c.fresh(t)
		if k := c.tableState(); k.Dials != 2 || c.server.Connections() != 0 || c.other.Connections() != 1 {
			t.Errorf("%d dials, %d and %d connections, want 2, 0 and 1", k.Dials, c.server.Connections(), c.other.Connections())
		}
	})
	bubble(t, "until it was read nothing is fresh", func(t *testing.T) {
		c := newCluster(t)
		c.other.Fail(refuse("ServiceListRequest", "", 300))
		c.server.Fail(refuse("ServiceListRequest", "", 300))
		c.source.Recheck()
		later(10 * time.Second)
		if k := c.tableState(); k.Stale == nil || k.Dials != 1 {
			t.Errorf("%+v, want it to be stale still", k)
		}
		c.other.Fail(nil)
		c.server.Fail(nil)
		later(time.Minute)
		if k := c.tableState(); k.Stale != nil || k.Dials != 2 {
			t.Errorf("%+v, want it to be fresh", k)
		}
	})
	bubble(t, "a Recheck during an outage is done by its end", func(t *testing.T) {
		c := newCluster(t)
		c.down.Store(true)
		c.other.Close()
		c.server.Drop()
		later(time.Second)
		c.source.Recheck()
		later(time.Minute)
		c.down.Store(false)
		later(10 * time.Second)
		if k, n := c.tableState(), len(c.server.Requests("ServerCheckRequest")); k.Dials != 2 || n != 2 {
			t.Errorf("%d dials, %d connections were made, want 2 of each", k.Dials, n)
		}
		c.fresh(t)
	})
}

// TestSource_LaggingServer: a source over a server that lags behind its cluster
// does not accept an old state as complete.
func TestSource_LaggingServer(t *testing.T) {
	behind := func(c *cluster) {
		c.other.Skew(-time.Minute) // it has reported nothing since
		(&readRig{server: c.other}).register("api.A", "10.0.0.1")
	}
	bubble(t, "services that it shows after some seconds were never removed", func(t *testing.T) {
		c := newCluster(t)
		behind(c)
		c.server.Drop()
		n := c.lost(3 * time.Second)
		c.other.Skew(0)
		two(&readRig{server: c.other})
		if n += c.lost(5 * time.Second); n != 0 || c.other.Connections() != 1 {
			t.Errorf("%d rows lost endpoints, %d connections to the other server, want 0 and 1", n, c.other.Connections())
		}
		c.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
		c.fresh(t)
	})
	bubble(t, "a service that it does not list yet is asked for, and was never gone", func(t *testing.T) {
		c := newCluster(t)
		c.other.Remove(named("api.A"))
		c.server.Drop()
		n := c.lost(600 * time.Millisecond)
		two(&readRig{server: c.other})
		if n += c.lost(5 * time.Second); n != 0 || c.other.Connections() != 1 {
			t.Errorf("%d rows lost endpoints, %d connections to the other server, want 0 and 1", n, c.other.Connections())
		}
		c.reports(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
		c.fresh(t)
	})
	bubble(t, "a server whose clock is behind is accepted in the end, and missing services are found missing", func(t *testing.T) {
		c := newCluster(t)
		behind(c)
		c.other.Remove(named("api.B"))
		c.server.Drop()
		later(15 * time.Second)
		c.reports(t, "api.A=10.0.0.1")
		c.fresh(t)
		for name, row := range c.reader.Drain().Rows {
			if !row.Found {
				t.Errorf("row %s is reported gone, want it found missing", name)
			}
		}
	})
	bubble(t, "where nothing has changed a clock that is behind costs no time", func(t *testing.T) {
		c := newCluster(t)
		c.other.Skew(-time.Hour)
		c.server.Drop()
		later(900 * time.Millisecond)
		c.fresh(t)
		if c.other.Connections() != 1 {
			t.Errorf("%d connections to the other server, want 1", c.other.Connections())
		}
	})
}
