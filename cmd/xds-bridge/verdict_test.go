package main

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
)

// The first line of status and its exit code say the same, and both say what
// keeps entries as they are although nothing is left to write.
func TestVerdictOfAStatus(t *testing.T) {
	reasons := func(r bridge.Reason) []bridge.Status {
		return []bridge.Status{{Bridges: []bridge.BridgeStatus{{Reasons: map[bridge.Reason]int{bridge.ReasonSynced: 3, r: 1}}}}}
	}
	holds := []bridge.Status{{Holds: []bridge.Hold{{ID: "1"}}}}
	for name, tt := range map[string]struct {
		d    admin.Document
		code int
		says string
	}{
		"all is written":               {admin.Document{Ready: true, InSync: true, Loops: reasons(bridge.ReasonExcluded)}, exitOK, "in step"},
		"a root that has gone":         {admin.Document{Ready: true, InSync: true, Loops: reasons(bridge.ReasonUnknown)}, exitFindings, "in step but for services that a source cannot tell of"},
		"deletions that are held back": {admin.Document{Ready: true, InSync: true, Loops: holds}, exitHeld, "in step but for deletions that are held back"},
		"both":                         {admin.Document{Ready: true, InSync: true, Loops: append(reasons(bridge.ReasonUnknown), holds...)}, exitHeld, "in step but for deletions that are held back"},
		"something is left to write":   {admin.Document{Ready: true, Loops: reasons(bridge.ReasonPending)}, exitFindings, "not in step"},
		"it has just begun":            {admin.Document{}, exitFindings, "not ready yet"},
	} {
		t.Run(name, func(t *testing.T) {
			var e exit
			if err := verdictOf(tt.d); err != nil && !errors.As(err, &e) || e.code != tt.code {
				t.Errorf("exit code %d, want %d (%v)", e.code, tt.code, err)
			}
			if says := readiness(tt.d); says != tt.says {
				t.Errorf("says %q, want %q", says, tt.says)
			}
		})
	}
}
