//go:build soak

package bridge_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/mutanttest"
)

func mutants() []mutanttest.Mutant {
	return []mutanttest.Mutant{
		{"an endpoint that the source cannot report is kept", "pipeline.go", "func unknownError(err error) error {\n\tif err == nil {", "func unknownError(err error) error {\n\tif true {"},
		{"a group that was never read has no count", "guards.go", "it.readAt.IsZero() && (unread ||", "false && (unread ||"},
		{"new endpoints are not in the baseline", "guards.go", "\t\tstored.New++\n", ""},
		{"endpoints added before the records were read are not in the baseline", "records.go", "\tb.guard.Load(all)\n", "\tb.guard = guard.New(b.guard.Options, all)\n"},
		{"a record is stored before a deletion", "guards.go", "g.state.records.isPending(b.recordOf(o.item.group), freed)", "false"},
		{"a denied entry is kept", "hold.go", "fate, what := guard.Denied,", "fate, what := guard.Free,"},
		{"an approved entry is deleted", "hold.go", "fate, what = guard.Free,", "fate, what = guard.Denied,"},
		{"the records of an earlier process are read first", "engine.go", " && s.records.guardsRead", ""},
		{"everything is read before anything is judged", "engine.go", "len(s.unread)+len(s.agenda.arrivals) == 0", "true"},
		{"a group is read after a call that failed", "outcome.go", "\tit.readAt = time.Time{}\n\tit.wasBelieved = false\n\tit.pace.restore", "\tit.pace.restore"},
		{"the records of a guard are stored", "records.go", "\tname := b.recordOf(r.Service).name\n", "\tname := b.recordOf(r.Service).name\n\tif name != \"\" {\n\t\treturn\n\t}\n"},
		{"a written entry counts as stored", "outcome.go", "e.state.journal.reportWrite(o, e.state.planner.Applied(o.change), now)", "e.state.planner.Applied(registry.Change{Group: o.change.Group})"},
		{"a claim makes its group due", "engine.go", "if e.state.agenda.touch(it, now) {", "if false {"},
		{"a missing endpoint is a candidate", "guards.go", "return guard.Missing", "return guard.Unknown"},
		{"a freed entry makes its group due", "guards.go", "g.touchGroups(r.Free, now)", "g.touchGroups(r.Free[:0], now)"},
		{"a group is read before it is written", "calls.go", "case it.readAt.IsZero():\n\t\treturn false", "case it.readAt.IsZero():\n\t\treturn it.change.pending()"},
		{"a stored claimed endpoint is not new", "guards.go", "case row.Stored:\n\t\tstored.Claimed++", "case row.Stored:\n\t\tstored.New++"},
	}
}

// TestEngine_MutantsAreFound breaks one rule at a time. In the schedules
// records are read so early that no judgement waits for them; a story reads them late.
func TestEngine_MutantsAreFound(t *testing.T) {
	mutanttest.Run(t, mutants(), "-run", "^(TestEngine_Schedules|TestEngine_Restart)$")
}
