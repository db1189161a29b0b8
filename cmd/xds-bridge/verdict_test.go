package main

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/admin"
)

// The first line of status and its exit code say the same, and both say what
// keeps entries as they are although nothing is left to write.
func TestStatus_ExitCodes(t *testing.T) {
	t.Parallel()
	of := func(peer string, names ...admin.ConditionName) (all []admin.Condition) {
		for _, n := range names {
			all = append(all, admin.Condition{Direction: admin.OfTarget, Registry: peer, Name: n})
		}
		return all
	}
	for name, tt := range map[string]struct {
		d    admin.Document
		code int
		says string
	}{
		"nothing is to be reported": {admin.Document{Ready: true, InSync: true}, exitOK, "in sync"},
		"a root that has gone":      {admin.Document{Ready: true, Conditions: of("zk", admin.Partial)}, exitFindings, "not in sync: zk partial"},
		"a guard holds":             {admin.Document{Ready: true, Conditions: of("zk", admin.Held)}, exitHeld, "not in sync: zk held"},
		"a guard holds, and more":   {admin.Document{Ready: true, Conditions: of("zk", admin.Unreachable, admin.Held, admin.Idle)}, exitHeld, "not in sync: zk unreachable, zk held, zk idle"},
		"two bridges claim nothing": {
			admin.Document{Ready: true, Conditions: of("zk", admin.Idle, admin.Idle)}, exitFindings, "not in sync: zk idle",
		},
		"a reload was refused": {
			admin.Document{Ready: true, Conditions: []admin.Condition{{Direction: admin.OfProcess, Name: admin.ReloadRefused}}},
			exitFindings, "not in sync: process reload-refused",
		},
		"clients have not come back": {
			admin.Document{Ready: true, Conditions: []admin.Condition{{Direction: admin.OfSource, Registry: "mesh", Name: admin.Partial, Until: time.Unix(1, 0)}}},
			exitOK, "in sync",
		},
		"it has just begun": {admin.Document{Conditions: of("zk", admin.Pending)}, exitFindings, "not ready yet: zk pending"},
	} {
		t.Run(name, func(t *testing.T) {
			if code := statusCode(tt.d); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if says := readiness(tt.d); says != tt.says {
				t.Errorf("says %q, want %q", says, tt.says)
			}
		})
	}
}
