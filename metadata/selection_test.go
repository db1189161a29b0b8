package metadata_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// What is selected is said by what people know a service by, wherever it is
// stored.
func TestSelectionOfServicesOfRegistries(t *testing.T) {
	t.Parallel()
	greeter := &registry.Service{
		Name:       "dubbo-interface:/dubbo/providers:org.acme.Greeter:1.0:blue",
		Interfaces: []registry.Interface{{Name: "org.acme.Greeter", Version: "1.0", Group: "blue"}},
	}
	inNacos := &registry.Service{Name: "dubbo-interface:@DEFAULT_GROUP/providers:org.acme.Greeter:1.0:blue", Interfaces: greeter.Interfaces}
	for name, tt := range map[string]struct {
		of      *registry.Service
		pattern string
		takes   bool
	}{
		"an interface":                            {greeter, "org.acme.Greeter", true},
		"interfaces of a package":                 {greeter, "org.acme.*", true},
		"an interface in Nacos":                   {inNacos, "org.acme.Greeter", true},
		"a service key":                           {greeter, "providers:org.acme.Greeter:1.0:blue", true},
		"service keys of a version":               {inNacos, "providers:org.acme.Greeter:1.0:*", true},
		"the end of the name in the status":       {greeter, "*.Greeter:1.0:blue", true},
		"the format, by the name in the status":   {inNacos, "dubbo-interface:*", true},
		"an application":                          {&registry.Service{Name: "spring-cloud:/services/orders"}, "orders", true},
		"a host of a mesh":                        {&registry.Service{Name: "greeter.shop.svc.cluster.local:20000"}, "*.shop.svc.cluster.local", true},
		"another interface":                       {greeter, "org.acme.Greet", false},
		"another package":                         {greeter, "com.acme.*", false},
		"an interface of a host, which it is not": {&registry.Service{Name: "greeter.shop.svc.cluster.local:20000", Interfaces: greeter.Interfaces}, "org.acme.*", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := naming.ParsePattern(tt.pattern)
			if err != nil {
				t.Fatal(err)
			}
			patterns := []naming.Pattern{p}
			if err := (metadata.Selection{Include: patterns}).Refuse(tt.of); (err == nil) != tt.takes {
				t.Errorf("included: %v", err)
			}
			if err := (metadata.Selection{Exclude: patterns}).Refuse(tt.of); (err != nil) != tt.takes {
				t.Errorf("excluded: %v", err)
			}
		})
	}
}
