//go:build soak

package lease_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/mutanttest"
)

// TestMutantsAreFound breaks one rule at a time, and a test fails each time.
func TestMutantsAreFound(t *testing.T) {
	mutanttest.Run(t, []mutanttest.Mutant{
		{"a lease counts for two thirds of the ttl", "lease.go", "o.TTL * 2 / 3", "o.TTL"},
		{"a leader has some time to get ready", "lease.go", "8 * o.TTL", "o.TTL"},
		{"a lease counts from before the write", "elector.go", "v.written(next, now)", "v.written(next, time.Now())"},
		{"a target out of reach is told", "elector.go", "e.opts.Reaches(), record{}", "true, record{}"},
		{"a later version is left alone", "record.go", "r.Format != format && r.Format != 0", "false"},
		{"a lease that ran out is counted", "elector.go", "e.lost++", ""},
		{"the loop is told of another leadership", "elector.go", "case e.changed <- struct{}{}:", ""},
		{"who was configured otherwise counts no longer than that", "elector.go", "time.Since(o.at) >= Remembered", "false"},
		{"nobody is known before the record is read", "elector.go", "v.record.Format == 0", "false"},
		{"a record made anew keeps its leader", "view.go", "v.record.Format == 0", "true"},
		{"nobody is dead because the record was out of sight", "view.go", "blind || ", "blind && false || "},
		{"who changes its entry lives", "view.go", "|| m.Beat != v.record.Members[name].Beat", ""},
		{"who stood in the record is remembered", "view.go", "v.other = sighting{name, m.Config, now}", ""},
		{"who agrees again differs no more", "view.go", " || name == v.other.name", ""},
		{"who is silent for the ttl is dead", "view.go", "now.Sub(v.seen[name]) < max(v.TTL, time.Duration(m.TTL)*time.Millisecond)", "true"},
		{"the larger ttl counts", "view.go", "max(v.TTL, time.Duration(m.TTL)*time.Millisecond)", "v.TTL"},
		{"ready is who did what its role asks for", "view.go", "(v.done.Role == bridge.RoleLeader) == (read.Leader == self)", "true"},
		{"ready is who did it in this term", "view.go", "v.done.Term == read.Term && ", ""},
		{"terms go on above those that were seen", "view.go", "next.Term = v.highest + 1", ""},
		{"an entry is renewed", "view.go", " && now.Sub(v.renewed) < v.beat()", ""},
		{"a leader stops before it makes another one", "view.go", "v.renewed = time.Time{} //", "//"},
		{"a renewal is seen", "view.go", "own.Beat++", ""},
		{"patience is for leaders that were not ready", "view.go", "v.unready, v.patience = time.Time{}, v.leastPatience()", ""},
		{"patience doubles", "view.go", "min(2*v.patience, 32*v.leastPatience())", "v.patience"},
		{"nobody takes the place of a living leader", "view.go", " && !r.has(r.Leader)", ""},
		{"a leader waits for one that is ready", "view.go", " && r.ready(candidate) && ", " && "},
		{"a leader that leaves hands over", "view.go", "(v.leaving || overdue)", "overdue"},
		{"a leader that is overdue hands over", "view.go", "(v.leaving || overdue)", "(v.leaving || overdue && false)"},
		{"each leader has a term of its own", "view.go", "candidate, r.Term+1", "candidate, r.Term"},
		{"who is alone leaves", "view.go", "candidate == \"\" || ", ""},
		{"who leaves waits until the next one is ready", "view.go", " && r.ready(r.Leader))", ")"},
		{"who is no member leads nothing", "view.go", "v.record.has(v.Identity) && ", ""},
		{"those that are ready come first", "record.go", ", ready && !is:", ":"},
		{"who leaves does not lead next", "record.go", "case m.Leaving, ready", "case ready"},
		{"targets have different leaders", "record.go", "target + \"\\x00\" + other", "other"},
		{"a token is for one server", "kubernetes.go", "return http.ErrUseLastResponse", "return nil"},
		{"an object that is gone is another", "kubernetes.go", " || apierrors.IsNotFound(err) && version != \"\"", ""},
	}, "-short")
}
