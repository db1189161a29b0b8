package client_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// TestZooKeeper_Formats: an instance is where its framework looks, is found by name, and its removal
// is reported.
func TestZooKeeper_Formats(t *testing.T) {
	for format, want := range map[string]struct {
		protocol, parent, data string
		weight                 float64
	}{
		"kratos":       {"grpc", "/microservices/greeter", `"endpoints":["grpc://10.0.0.1:20000"]`, 3},
		"spring-cloud": {"http", "/services/greeter", `"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance"`, 1}, // the format has no weights
		"hertz":        {"http", "/greeter", `"Weight":30`, 3},
		"kitex":        {"thrift", "/greeter", `"Weight":30`, 3},
		"plain":        {"tcp", "/plain/greeter", `"weight":3`, 3},
	} {
		t.Run(format, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ensemble(t)
				provider, consumer := formatted(t, s, "p", format), formatted(t, s, "", format)
				i := at("10.0.0.1", "greeter")
				i.Protocol, i.Weight = want.protocol, client.WeightOf(3)
				i.Interfaces = []client.Interface{{Name: "greeter." + want.protocol}}
				if err := provider.Register(i); err != nil {
					t.Fatal(err)
				}
				if err := provider.WaitVisible(t.Context(), i); err != nil {
					t.Fatal(err)
				}
				var data []byte
				for _, name := range s.Children(want.parent) {
					n, _ := s.Get(want.parent + "/" + name)
					data = append(data, n.Data...)
				}
				if !strings.Contains(string(data), want.data) {
					t.Errorf("below %s: %q; want %s; there is %v", want.parent, data, want.data, s.Paths("/"))
				}
				found, err := consumer.Resolve(t.Context(), client.Named("greeter"))
				if err != nil || hosts(found) != "[10.0.0.1]" || found.Endpoints[0].Weight.Part() != want.weight {
					t.Errorf("found %v, %v", found, err)
				}
				if err := provider.Deregister(t.Context(), i); err != nil {
					t.Error(err)
				}
				if got, err := ask(consumer, "greeter", time.Minute); got != "[]" || err != nil {
					t.Errorf("once it is withdrawn it finds %s, %v", got, err)
				}
			})
		})
	}
}

// TestZooKeeper_PortsOfOneInstance: both ports of an application are found under its name, as are
// those of a second process.
func TestZooKeeper_PortsOfOneInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		one, two, consumer := formatted(t, s, "one", "kratos"), formatted(t, s, "two", "kratos"), formatted(t, s, "", "kratos")
		for _, p := range []struct {
			process  *client.Client
			host     string
			protocol string
			port     uint16
		}{{one, "10.0.0.1", "grpc", 9000}, {one, "10.0.0.1", "http", 8000}, {two, "10.0.0.2", "grpc", 9000}} {
			i := client.Instance{Application: "greeter", Host: p.host, Port: p.port, Protocol: p.protocol}
			i.Interfaces = []client.Interface{{Name: "greeter." + p.protocol}}
			if err := p.process.Register(i); err != nil {
				t.Fatal(err)
			}
			if err := p.process.WaitVisible(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := consumer.Resolve(t.Context(), client.Named("greeter")); err != nil || len(found.Endpoints) != 3 {
			t.Errorf("found %v, %v; want three", found, err)
		}
	})
}
