package app

import (
	"strings"
	"testing"
)

// What is said when the process ends is true of the registry at hand.
func TestRuntime_EntriesAfterStop(t *testing.T) {
	t.Parallel()
	zk, session, nacos, served := &sink{targetConnection: &targetConnection{name: "zk", persistent: true}}, &sink{targetConnection: &targetConnection{name: "zk"}}, &sink{targetConnection: &targetConnection{name: "nacos"}}, &sink{targetConnection: &targetConnection{name: "mesh", listen: ":1"}}
	for want, sinks := range map[string][]*sink{
		"every entry is kept":                              {zk, served},
		"entries in nacos go with the connection, unless ": {zk, nacos},
		"entries in zk go with the connection, unless ":    {session},
	} {
		if said := (&runtime{sinks: sinks}).entriesAfter(); !strings.HasPrefix(said, want) {
			t.Errorf("%q, want %q", said, want)
		}
	}
}
