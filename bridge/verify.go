package bridge

import (
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// readBack makes a group that was just written due to be read, where the
// target asks for that. After a reading back that found something missing it
// is twice as late, so that a group that never comes out as it should costs no
// more than its refreshes in the end.
func (l *loop) readBack(it *item, now time.Time) {
	if l.verify > 0 {
		it.checkAt = now.Add(registry.Backoff{Min: l.verify, Max: max(l.verify, l.opts.Refresh)}.After(it.missed + 1))
	}
}

// stubborn is after how many writes in a row, each of which was read back as
// something else, a group is said to be what others make of it; contested is
// the same for writes that met what others wrote, the last about half a minute
// after the first: replicas that take over from each other are done by then.
const (
	stubborn  = 3
	contested = 6
)

const overridden = "the registry shows it otherwise than it was written, time and again: " +
	"another process of this owner, another writer, or what somebody set in the registry's console has it so"

// wasReadBack notes that a group was read after its last write.
func (it *item) wasReadBack(differs bool) { //nolint:revive // a finding, not a flag
	if differs && !it.checkAt.IsZero() {
		it.missed++
	}
	it.checkAt = time.Time{}
}

// unchecked reports whether the last write is still to be read back.
func (it *item) unchecked() bool { return !it.checkAt.IsZero() }
