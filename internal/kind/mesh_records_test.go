package kind

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
)

// TestTargetKey: an address is told apart from the name of its mesh, and what is kept of it
// stays where earlier versions look.
func TestTargetKey(t *testing.T) {
	for at, want := range map[config.TargetKey]struct{ name, record string }{
		{Registry: "zk"}:                              {"zk", "served-s3s1bupj"},
		{Registry: "mesh", Listen: ":15031"}:          {"mesh (:15031)", "served-v5v6p729"},
		{Registry: "mesh", Listen: "127.0.0.1:36031"}: {"mesh (127.0.0.1:36031)", "served-b6i3f6fi"},
	} {
		if name, record := at.String(), recordName(at); name != want.name || record != want.record {
			t.Errorf("%#v is %q, kept as %q, want %q and %q", at, name, record, want.name, want.record)
		}
	}
}
