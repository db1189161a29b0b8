package formats_test

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errUnknown = errors.New("denied")

// TestAll_Places shows that the place of a codec, and no other, has its services and its
// unknown groups.
func TestAll_Places(t *testing.T) {
	s := &registry.Service{
		Name: "orders.shop.svc.cluster.local:80", Application: "orders", Interfaces: []registry.Interface{{Name: "api.Orders", Version: "1.0", Group: "g"}},
		Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 80}},
	}
	for _, d := range formats.All() {
		for kind, construct := range d.Forms {
			t.Run(d.Name+" "+kind, func(t *testing.T) {
				codec := func(o format.Options) metadata.Codec {
					o.Documents, o.Protocol, o.Mark = "/dubbo", d.Protocol, metadata.NewMark("shop", "b")
					c, err := construct(o)
					if err != nil {
						t.Fatal(err)
					}
					return c
				}
				c := codec(format.Options{Root: "/r", Group: "G"})
				others := []metadata.Codec{
					codec(format.Options{Root: "/r/below", Group: "G2"}), codec(format.Options{Root: "/other", Group: "G", Namespace: "n"}),
				}
				if d.Lookup == format.ByName { // the others have neither patterns nor this root
					others = append(others, codec(format.Options{Root: "/r", Group: "G", Service: "other-*"}), codec(format.Options{Root: "/", Group: "G3"}))
				}
				entries, err := c.Encode(s)
				if err != nil {
					t.Fatal(err)
				}
				decoded, failed := c.Decode(entries, entries)
				if len(decoded) != 1 || len(failed) > 0 {
					t.Fatalf("Decode(%v) = %v, %v, want one service", entries, decoded, failed)
				}
				name, scope := decoded[0].Name, metadata.ScopeOf(c, entries[0].Group)
				if at := c.Place(); !at.Has(name) || !sees(at, scope) || !sees(at, at.Scope()) {
					t.Errorf("place %s has %s: %t, sees %s: %t; want both", at.Scope(), name, at.Has(name), scope, sees(at, scope))
				}
				for _, o := range others {
					if at := o.Place(); at.Has(name) || sees(at, scope) {
						t.Errorf("place %s has %s: %t, sees %s: %t; want neither", at.Scope(), name, at.Has(name), scope, sees(at, scope))
					}
				}
			})
		}
	}
}

// sees reports whether a reader of a place sees that a scope is unknown.
func sees(at registry.Place, scope string) bool {
	table := registry.NewTable()
	table.Unknown(scope, errUnknown)
	return len(table.ReaderOn(make(chan struct{}, 1), at).Drain().Unknown) > 0
}
