package bridge

import "time"

// Waits are for what the source may still say. While the process stood still,
// as by SIGSTOP or with its machine, nothing was heard, so that waits begin
// anew after it.

const (
	// pulse is how often the loop turns at least while deletions wait, so that
	// a pause shows in how late a turn is.
	pulse = time.Second

	// late is how much later than its timer a turn is after a pause.
	late = time.Second
)

// A clock tells whether the process stood still.
type clock struct {
	due  time.Time // when the next turn is to be at the latest; zero: no such time
	seen time.Time // when the last one was
}

// set takes in that a turn ends, and when the next one is due.
func (c *clock) set(due, now time.Time) { c.due, c.seen = due, now }

// paused reports whether a turn is late, or the clock on the wall continued
// without the one that timers follow, as on a machine that was suspended.
func (c *clock) paused(now time.Time) bool {
	slept := now.Round(0).Sub(c.seen.Round(0)) - now.Sub(c.seen)
	return !c.seen.IsZero() && (slept > late || !c.due.IsZero() && now.Sub(c.due) > late)
}
