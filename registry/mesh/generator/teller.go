package generator

import (
	"errors"
	"log/slog"
	"time"

	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// maxSkipped is how many keys that cannot be read are listed.
const maxSkipped = 1000

// teller judges readings, and knows what is to be told of them.
type teller struct {
	state    *state
	replica  debug.ReplicaStatus
	complete bool // a reading was
	log      *slog.Logger
}

// take takes a reading that began at a time, and reports whether there are news. It
// returns why the reading does not count.
func (t *teller) take(a answer, began time.Time) (news bool, failure error) {
	news, err := t.state.take(a)
	if err != nil {
		refused := &debug.Error{
			Cause: debug.Truncated, Where: "the api generator at " + t.replica.Replica, Err: err,
			Fix: "see the log of istiod; where the mesh is meant to be empty, restart the bridge",
		}
		return t.fail(refused), refused
	}
	again := cause(t.replica.Err) != ""
	if again {
		t.log.Info("service keys are read again", "replica", t.replica.Replica)
	}
	news = news || again || !t.complete
	t.complete, t.replica = true, debug.ReplicaStatus{Replica: t.replica.Replica, Answered: true, At: began}
	return news, nil
}

// fail notes why a reading does not count, and reports whether that is news.
func (t *teller) fail(err error) (news bool) {
	if news = cause(t.replica.Err) != cause(err); news {
		t.log.Warn("service keys cannot be read, the last known ones stay", "replica", t.replica.Replica, "err", err)
	}
	t.replica.Err = err
	return news
}

// cause is what two errors share that mean the same: texts of the operating system
// differ in port numbers.
func cause(err error) debug.Cause {
	if e, ok := errors.AsType[*debug.Error](err); ok {
		return e.Cause
	}
	return ""
}

// snapshot returns what is known.
func (t *teller) snapshot(now time.Time) debug.Snapshot {
	s := t.state
	return debug.Snapshot{
		Mapping: s.mapping, Complete: t.complete, Err: t.replica.Err, Unread: s.unread, At: now,
		Skipped: s.skipped[:min(len(s.skipped), maxSkipped)], SkippedTotal: len(s.skipped),
		Replicas: []debug.ReplicaStatus{t.replica},
	}
}
