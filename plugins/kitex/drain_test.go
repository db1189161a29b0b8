package kitex_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/kitex/pkg/discovery"
	"github.com/cloudwego/kitex/pkg/registry"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/kitex"
)

func info() *registry.Info {
	return &registry.Info{ServiceName: "greeter", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8080}}
}

// TestDrain_Unconfirmed: Kitex would report an error as one of its server.
func TestDrain_Unconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := clientfake.New()
		c := member(t, r)
		h := kitex.NewRegistry(c)
		if err := h.Register(info()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.Down(errors.New("the registry is away"))
		began := time.Now()
		if err := h.Deregister(info()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("took %s", took)
		}
		if left := c.Status().Instances; len(left) > 0 {
			t.Errorf("still published: %v", left)
		}
	})
}

// TestDrain_NoWeight: Kitex's balancer leaves out instances of weight 0.
func TestDrain_NoWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := clientfake.New()
		if err := kitex.NewRegistry(member(t, r)).Register(info()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		found, err := kitex.NewResolver(member(t, r)).Resolve(t.Context(), "greeter")
		if err != nil || len(found.Instances) != 1 || found.Instances[0].Weight() != discovery.DefaultWeight {
			t.Errorf("%+v, %v", found, err)
		}
	})
}
