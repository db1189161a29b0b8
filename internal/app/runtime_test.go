package app

import (
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/kind"
)

// What is said when the process ends is true of the registry at hand.
func TestRuntime_EntriesAfterStop(t *testing.T) {
	t.Parallel()
	zk, session, nacos, served := &target{targetConnection: &targetConnection{name: "zk", Connection: &kind.Connection{Persistent: true}}}, &target{targetConnection: &targetConnection{name: "zk", Connection: &kind.Connection{}}}, &target{targetConnection: &targetConnection{name: "nacos", Connection: &kind.Connection{}}}, &target{targetConnection: &targetConnection{name: "mesh", listen: ":1", Connection: &kind.Connection{}}}
	for want, targets := range map[string][]*target{
		"every entry is kept":                              {zk, served},
		"entries in nacos go with the connection, unless ": {zk, nacos},
		"entries in zk go with the connection, unless ":    {session},
	} {
		if said := (&runtime{targets: targets}).entriesAfter(); !strings.HasPrefix(said, want) {
			t.Errorf("%q, want %q", said, want)
		}
	}
}
