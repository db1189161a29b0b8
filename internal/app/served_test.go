package app

import "testing"

// TestTargetKey: an address is told apart from the name of its mesh, and what is kept of it
// stays where earlier versions look.
func TestTargetKey(t *testing.T) {
	for at, want := range map[targetKey]struct{ name, record string }{
		{registry: "zk"}:                              {"zk", "served-s3s1bupj"},
		{registry: "mesh", listen: ":15031"}:          {"mesh (:15031)", "served-v5v6p729"},
		{registry: "mesh", listen: "127.0.0.1:36031"}: {"mesh (127.0.0.1:36031)", "served-b6i3f6fi"},
	} {
		if name, record := at.String(), servedName(at); name != want.name || record != want.record {
			t.Errorf("%#v is %q, kept as %q, want %q and %q", at, name, record, want.name, want.record)
		}
	}
}
