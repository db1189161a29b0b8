package registry

import (
	"context"
	"time"
)

// Capabilities are what a Target can do in addition to its methods. The zero value can
// do nothing in addition. A wrapper of a target returns the Capabilities of that target,
// less those that it takes away: conformance.Wrapper checks it field by field.
type Capabilities struct {
	// Sessions reports whether entries in this registry end with the session of the
	// process that registered them. Providers can then register themselves next to
	// the bridge.
	Sessions bool

	// Lost is ready after the session ended that held our entries, when all of them have
	// to be written again. It is nil if our entries outlive the session.
	Lost <-chan struct{}

	// Shared reports whether the target keeps the entries of each replica apart and
	// shows readers the sum, so that all replicas publish the same entries.
	Shared bool

	// Admission returns what the first Write waits for, such as another process that
	// still writes there; nil once it waits for nothing. It must not block. A target
	// without Admission is always admitted.
	Admission func() error

	// Records stores texts of the owner in the registry itself.
	Records Recorder

	// VerifyAfter is the time after a write when its group is read back, because the
	// target may lose a confirmed write or show it only later; 0: not read back.
	VerifyAfter time.Duration

	// Watcher reports changes of groups.
	Watcher Watcher

	// Overlap returns how long an entry of a group is kept next to the entry that
	// replaces it, because readers would fail calls otherwise; 0 if Write replaces it.
	// A target without Overlap replaces every entry.
	Overlap func(Group) time.Duration

	// Leave returns an entry of ours so that other owners, who wait for its deletion,
	// read it as Stored.Leaving; unchanged if its format cannot express that.
	Leave func(Entry) Entry

	// SourcesComplete starts to serve the clients of a target that serves clients of its
	// own, to which its entries are the whole truth. It is called once every source has
	// reported everything and all of that was written. It may be called again, and must
	// not block.
	SourcesComplete func()
}

// ReadOnly returns the capabilities of a wrapper that writes nothing, such as that of a
// dry run: Records can be read and drops what it should store, and SourcesComplete has
// no effect. Everything that follows or precedes a write is cleared.
func (c Capabilities) ReadOnly() Capabilities {
	c.Lost, c.Admission, c.VerifyAfter, c.Watcher, c.Overlap, c.Leave = nil, nil, 0, nil, nil, nil
	if c.Records != nil {
		c.Records = readOnlyRecorder{c.Records}
	}
	if c.SourcesComplete != nil {
		c.SourcesComplete = func() {}
	}
	return c
}

// A Recorder stores small texts of an owner in the registry itself, for all replicas
// and later processes of the owner. Texts can only release what a guard holds: nothing
// is deleted because of a text.
type Recorder interface {
	// Records returns the texts of a kind by name. If some are refused, it returns the
	// others and an error that is ErrRefused.
	Records(ctx context.Context, kind string) (map[string]string, error)

	// Record stores texts of a kind by name, together where the registry can; an empty
	// text deletes. Kind and names have letters, digits and hyphens. Each text is stored
	// whole or not at all. If the target refuses some, the error is Refused by name, and
	// the others are stored. Any other error that wraps ErrRefused refuses all of them.
	Record(ctx context.Context, kind string, texts map[string]string) error
}

// readOnlyRecorder reads the records of another recorder and stores none.
type readOnlyRecorder struct{ Recorder }

// Record implements Recorder.
func (readOnlyRecorder) Record(context.Context, string, map[string]string) error { return nil }

// A Watcher observes changes of groups.
type Watcher interface {
	// Watch reads a group as Target.Read does, and watches it until the next Read of it
	// or until Capabilities.Lost is ready.
	Watch(ctx context.Context, group Group) ([]Stored, error)

	// Changed is ready after a watched group changed. It wakes one caller.
	Changed() <-chan struct{}

	// Changes returns the groups that changed since they were last read, each once. If
	// the target cannot distinguish them, changes by Write are among them. Changes by
	// others after Write may be missing until the group is read. It must not block.
	Changes() []Group
}
