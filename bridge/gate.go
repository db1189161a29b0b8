package bridge

import (
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Gate says what a loop may write where several replicas share the work on
// one target. The groups are divided into shards, and of each shard one
// replica decides what is written.
type Gate struct {
	Shards int

	// Stand returns what this replica is to a shard now. It looks at the
	// clock, must not block, and is called from several goroutines.
	Stand func(shard int) Stand

	// Changed is ready after the stand towards any shard may have changed.
	Changed <-chan struct{}

	// Ready is told when everything in a shard is as the role asks for: read
	// by who keeps warm, written by who decides or publishes. It must not
	// block.
	Ready func(shard int, s Stand)
}

// Stand is what a replica is to a shard.
type Stand struct {
	Role    Role
	Term    int64     // goes up whenever another replica becomes the decider
	Turn    int       // goes up whenever this replica's part in the shard begins anew
	Until   time.Time // of a decider: no write may begin or go on after it; zero: no such time
	Decider string    // who decides; empty where nobody does
}

// Role says what a replica does about a shard.
type Role string

// The roles.
const (
	RoleDecider Role = "decider" // writes
	RoleWarm    Role = "warm"    // plans and reads, to take over at once; publishes where the target is shared
	RoleAway    Role = "away"    // plans, and leaves the target alone
)

// Shard returns in which of n shards a group lies.
func Shard(group registry.Group, n int) int {
	if n <= 1 {
		return 0
	}
	h := hash(group)
	h ^= h >> 16 // the low bits of FNV-1a alone follow the last letters too closely
	return int(h % uint32(n))
}

// A post is what the loop knows of its stand towards one shard.
type post struct {
	stand  Stand
	tenure int       // counts the times that everything in it had to be read anew
	since  time.Time // of the tenure
	told   Stand     // for which Ready was last told
}

// acts reports whether the role has to write.
func (l *loop) acts(r Role) bool {
	return r == RoleDecider || r == RoleWarm && l.shared != nil
}

// role returns what the loop may do about a group at this moment.
func (l *loop) role(it *item) Role {
	if l.opts.Gate == nil || it.group.IsZero() {
		return RoleDecider
	}
	// The clock may be ahead of the post, never the other way round: a stand
	// that was gained is acted on once everything was made to be read anew.
	now := l.opts.Gate.Stand(it.shard)
	if p := l.posts[it.shard].stand; now.Role == RoleDecider && (p.Role != RoleDecider || p.Turn != now.Turn) {
		return RoleWarm
	}
	return now.Role
}

// openPosts returns where the loop stands at its start.
func openPosts(g *Gate, now time.Time) []post {
	if g == nil {
		return nil
	}
	posts := make([]post, g.Shards)
	for i := range posts {
		posts[i] = post{stand: g.Stand(i), tenure: 1, since: now}
	}
	return posts
}

// changed is ready when the gate has something new.
func (l *loop) changed() <-chan struct{} {
	if l.opts.Gate == nil {
		return nil
	}
	return l.opts.Gate.Changed
}

// restand takes in how the stands changed. A shard that was taken over is
// listed and read once more before anything in it is written, and its
// leftovers settle anew.
func (l *loop) restand(now time.Time) {
	gained, moved := false, make([]bool, len(l.posts))
	for i := range l.posts {
		before := l.posts[i]
		if l.posts[i], moved[i] = before.move(l.opts.Gate.Stand(i), now); moved[i] {
			l.opts.Log.Info("stand towards a shard changed", "target", l.opts.Target, "shard", i,
				"from", before.stand.Role, "to", l.posts[i].stand.Role, "decider", l.posts[i].stand.Decider)
		}
		gained = gained || l.posts[i].tenure != before.tenure
	}
	if !slices.Contains(moved, true) {
		return
	}
	for _, it := range l.agenda.items {
		if !it.group.IsZero() && moved[it.shard] {
			l.reconsider(it, now)
		}
	}
	if gained {
		l.listAgain(now)
	}
}

// move returns the post with a new stand, and whether that asks for something
// else than the one before.
func (p post) move(next Stand, now time.Time) (post, bool) {
	before := p.stand
	p.stand = next
	switch {
	case before.Role == next.Role && before.Turn == next.Turn:
		return p, false
	case next.Role == RoleDecider, next.Role == RoleWarm && before.Role != RoleDecider:
		p.tenure++ // what is known has to be learned anew
		p.since = now
	}
	return p, true
}

// listAgain makes the groups that the target has be listed anew.
func (l *loop) listAgain(now time.Time) {
	l.relist = true
	list, _ := l.agenda.item(registry.Group{})
	if list.busy {
		list.again = true
		return
	}
	list.wait(&l.agenda.changes, later(now, list.notBefore))
}

// reconsider makes a group due whose stand changed. What others made of it since
// it was read first is what losses are measured by from now on.
func (l *loop) reconsider(it *item, now time.Time) {
	it.notes, it.wakeAt, it.left = nil, time.Time{}, nil
	it.stir()
	l.account(it, now)
	stale := it.tenure != l.posts[it.shard].tenure
	it.recount = it.recount || stale
	if it.busy {
		it.again = it.again || stale
		return
	}
	if stale {
		it.readAt, it.notBefore = time.Time{}, time.Time{}
	}
	it.wait(&l.agenda.changes, now)
}

// confirmEvery is how often a shard is looked at that is not ready.
const confirmEvery = 100 * time.Millisecond

// confirm tells the gate of shards that became ready, and returns when it has
// to look again; the zero time where there is nothing to look for.
func (l *loop) confirm(now time.Time) time.Time {
	if !slices.ContainsFunc(l.posts, post.unconfirmed) {
		return time.Time{}
	}
	if next := l.confirmedAt.Add(confirmEvery); now.Before(next) {
		return next
	}
	l.confirmedAt = now
	if l.listed == nil || slices.ContainsFunc(l.ways, func(w *way) bool { return !w.complete() }) {
		return now.Add(confirmEvery)
	}
	behind := make([]bool, len(l.posts))
	for _, it := range l.agenda.items {
		behind[it.shard] = behind[it.shard] || !it.group.IsZero() && it.tenure != l.posts[it.shard].tenure
	}
	for i := range l.posts {
		if p := &l.posts[i]; p.unconfirmed() && !behind[i] && !l.asOf.Before(p.since) {
			p.told = p.stand
			l.opts.Gate.Ready(i, p.stand)
		}
	}
	return now.Add(confirmEvery)
}

// unconfirmed reports whether Ready is still to be told of the stand.
func (p post) unconfirmed() bool {
	told, s := p.told, p.stand
	return s.Role != RoleAway && (told.Role != s.Role || told.Term != s.Term || told.Turn != s.Turn)
}

// done notes that a group is as its stand asks for.
func (l *loop) done(it *item) {
	if l.posts != nil && !it.again {
		it.tenure = l.posts[it.shard].tenure
	}
}

// standby says who decides a group that this loop may not write.
func (l *loop) standby(it *item) (string, bool) {
	if l.opts.Gate == nil || it == nil || it.group.IsZero() || l.acts(l.role(it)) {
		return "", false
	}
	switch s := l.opts.Gate.Stand(it.shard); s.Decider {
	case "":
		return "no replica decides it at the moment", true
	default:
		return "decided by " + s.Decider, true
	}
}
