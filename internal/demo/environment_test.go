package demo_test

import (
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/internal/demo"
	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
)

// serveNacos serves on a free port and on the one 1000 above it.
func serveNacos(t *testing.T, s *nacosfake.Server) string {
	t.Helper()
	var config net.ListenConfig
	for range 100 {
		web, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := web.Addr().(*net.TCPAddr).Port
		rpc, err := config.Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1000)))
		if err == nil {
			s.Serve(rpc, web)
			t.Cleanup(s.Close)
			return "http://" + web.Addr().String()
		}
		_ = web.Close()
	}
	t.Fatal("no two free ports, one 1000 above the other")
	return ""
}

func TestNacos(t *testing.T) {
	server := nacosfake.NewServer()
	address := serveNacos(t, server)
	greeter := nacosfake.Service{Group: "xds-bridge-demo", Name: "providers:api.Greeter::"}
	used := nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:api.Greeter::"}
	for _, service := range []nacosfake.Service{greeter, used} {
		server.Set(service, "app", model.Instance{Ip: "10.9.9.9", Port: 1, Enable: true, Healthy: true, Ephemeral: true})
	}

	t.Run("live instances are there, changes are reported, and all of ours is gone after the end", func(t *testing.T) {
		s, end := live(t, demo.Options{Nacos: address})
		s.waitFor(t, "Nacos at "+address, "in sync: 9 entries", "+ providers:api.Greeter:: 10.244.3.14:20000 weight=200 meshLocality=eu-1/eu-1c (")
		if n := len(server.Instances(used)); n != 1 {
			t.Errorf("%d providers where consumers look, want the foreign one", n)
		}
		end()
		deadline := time.Now().Add(3 * time.Minute)
		for len(server.Instances(greeter)) != 1 && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		if left := server.Instances(greeter); len(left) != 1 || left[0].Ip != "10.9.9.9" {
			t.Errorf("left = %+v, want the foreign instance", left)
		}
	})
	t.Run("once prints instances", func(t *testing.T) {
		state := once(t, demo.Options{Nacos: address})
		if !state.InSync || len(state.Groups) != 4 || !strings.HasPrefix(state.Groups[0].Providers[0], `{"ip":"10.244.`) {
			t.Errorf("%+v", state)
		}
	})
	t.Run("two registries are one too many", func(t *testing.T) {
		err := demo.Run(t.Context(), demo.Options{Out: io.Discard, Nacos: address, ZooKeeper: "127.0.0.1:1"})
		if err == nil || !strings.Contains(err.Error(), "--nacos") {
			t.Error(err)
		}
	})
}
