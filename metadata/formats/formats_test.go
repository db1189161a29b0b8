package formats_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
)

// TestAll_Descriptors shows that each format names its entries and their place.
func TestAll_Descriptors(t *testing.T) {
	seen := make(map[string]bool)
	for _, d := range formats.All() {
		t.Run(d.Name, func(t *testing.T) {
			if seen[d.Name] {
				t.Error("the name is given twice")
			}
			seen[d.Name] = true
			if found, ok := formats.Find(d.Name); !ok || found.Name != d.Name {
				t.Errorf("Find = %v, %v", found.Name, ok)
			}
			if err := metadata.CheckProtocol(d.Protocol); err != nil {
				t.Errorf("the protocol %q: %v", d.Protocol, err)
			}
			if (d.Root != "") != (d.Forms[format.ZooKeeper] != nil) {
				t.Errorf("the root is %q; want one where there is a form in ZooKeeper, and none elsewhere", d.Root)
			}
			if len(d.Forms) == 0 {
				t.Error("no kind of registry can hold it")
			}
			for kind, construct := range d.Forms {
				c, err := construct(format.Options{Root: d.Root, Documents: "/dubbo", Protocol: d.Protocol})
				if err != nil || c.Kind() != d.Name {
					t.Errorf("in %s: %v, %v", kind, c, err)
				}
			}
		})
	}
}

func TestFind_Unknown(t *testing.T) {
	if d, ok := formats.Find("sofa"); ok {
		t.Errorf("Find = %v", d.Name)
	}
}
