//go:build soak

package guard_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/mutanttest"
)

func mutants() []mutanttest.Mutant {
	return []mutanttest.Mutant{
		{"an endpoint that the source cannot report is kept", "service.go", "case report == Unknown && c == nil && s.HeldSince.IsZero():", "case false:"},
		{"an unknown candidate is kept", "service.go", "case c.unknown:\n\t\treturn Unreported", "case false:\n\t\treturn Unreported"},
		{"a denial outlives a restart", "service.go", "r.Denied = append(r.Denied, key)", "_ = key"},
		{"an approval outlives a restart", "service.go", "r.Approved = append(r.Approved, key)", "_ = key"},
		{"a claim ends a denial", "service.go", "= make(map[string]*candidate, len(stored.Unclaimed)), 0", "= before, 0"},
		{"a loss counts below half of the baseline", "service.go", "2*(s.remaining()-uncertain) >= s.baseline()", "4*(s.remaining()-uncertain) >= s.baseline()"},
		{"an unreported removal counts", "service.go", "return unseen, unseen", "return 0, 0"},
		{"an unreported deletion is remembered", "service.go", "s.Missed = s.Missed || !replaced && c.missing", "_ = replaced"},
		{"the rest of a hold counts in full", "service.go", "s.Missed = s.Missed || !s.HeldSince.IsZero()", "_ = now"},
		{"candidates never raise the baseline", "service.go", "max(s.remaining()-s.uncertain, min(s.counted, s.baseline()))", "s.counted"},
		{"new endpoints do not raise the baseline", "service.go", "s.counted - s.newClaimed", "s.counted"},
		{"a service keeps its baseline for the window", "service.go", ">= window {", ">= window/2 {"},
		{"a held service keeps its baseline", "service.go", "for s.HeldSince.IsZero() && len(s.Peaks)", "for len(s.Peaks)"},
		{"a loss is recorded before it happens", "service.go", "if s.freesUnreplaced {", "if false {"},
		{"replaced endpoints are deleted", "service.go", "i < s.stored-s.baseline()", "i < 0"},
		{"a held service lets only reported ones go", "service.go", "!s.HeldSince.IsZero() && (!replaced || c.missing)", "!s.HeldSince.IsZero() && !replaced"},
		{"a missing endpoint settles", "service.go", "now.Sub(c.waitsSince) < o.Settle", "false"},
		{"the last endpoints wait", "service.go", "now.Sub(c.waitsSince) < o.LastEndpoint", "false"},
		{"a source confirms after a while", "service.go", "now.Sub(s.HeldSince) >= after && now.Sub(calmSince) >= after", "now.Sub(calmSince) >= after"},
		{"a source confirms over another connection", "service.go", " && connection > s.connection\n", "\n"},
		{"a hold that grows begins again", "service.go", "case s.claimed+s.uncertain < s.ClaimedWhenHeld || ", "case "},
		{"another connection does not repeat reports", "guard.go", "\t\t\ts.markMissing(now)\n", ""},
		{"only an operator ends the hold of most services", "guard.go", "g.sum.claimed == 0 || 2*g.emptied() > g.sum.services", "g.sum.claimed == 0"},
		{"only an operator ends the hold of an empty source", "guard.go", "g.sum.claimed == 0 || 2*g.emptied() > g.sum.services", "2*g.emptied() > g.sum.services"},
		{"no confirmation soon after something came back", "guard.go", "\t\t\tg.calmSince = now\n\t\t\tr.release", "\t\t\tr.release"},
		{"an empty source has no budget", "guard.go", "g.sum.claimed == 0 ||\n\t\t", ""},
		{"services without an endpoint count", "guard.go", "float64(l.emptied) > share*float64(g.sum.services) || ", ""},
		{"lost endpoints count", "guard.go", " || float64(l.lost) > share*float64(g.sum.endpoints)", ""},
		{"a few withdrawn endpoints may go", "guard.go", "l.lost -= l.kept", "_ = l"},
		{"a missing endpoint is not among those few", "guard.go", "if l.unseen == 0 && l.kept", "if l.kept"},
		{"one withdrawn service may go", "guard.go", "if l.emptied == 1 && l.emptiedUnseen == 0 && g.sum.claimed > 0 {", "if false {"},
		{"a denied endpoint is not accepted with the others", "guard.go", ` && c.decided == "" })`, " })"},
		{"warn holds nothing", "guard.go", "if g.Options.Mode == Warn || g.Options.Mode == Off {", "if g.Options.Mode == Off {"},
	}
}

// TestGuard_MutantsAreFound breaks one rule at a time.
func TestGuard_MutantsAreFound(t *testing.T) {
	mutanttest.Run(t, mutants(), "-short", "-run", "^TestGuard_")
}
