package bridge_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A list is what happened, in order.
type list[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *list[T]) add(x T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, x)
}

func (l *list[T]) get() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// take returns the list since the last call, and empties it.
func (l *list[T]) take() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// A fake is a target that records its calls. They may last, fail or do something else.
type fake struct {
	*memory.Target

	read      func(context.Context, registry.Group) ([]registry.Stored, error)
	write     func(context.Context, registry.Change) error
	delay     time.Duration                                         // of each call
	verify    time.Duration                                         // after a write it is read back
	admission error                                                 // another process may still write there
	hook      atomic.Pointer[func(memory.Op, registry.Group) error] // says which calls fail
	writes    atomic.Int64
	calls     list[call]
}

type call struct {
	op    memory.Op
	group registry.Group
	at    time.Time
}

func newFake(o memory.Options) *fake {
	f := &fake{}
	o.Owner, o.Fail = "me", f.record
	f.Target = memory.New(o)
	f.read, f.write = f.Target.Read, f.Target.Write
	return f
}

func (f *fake) record(op memory.Op, g registry.Group) error {
	time.Sleep(f.delay)
	f.calls.add(call{op, g, time.Now()})
	if hook := f.hook.Load(); hook != nil && *hook != nil {
		return (*hook)(op, g)
	}
	return nil
}

func (f *fake) Read(ctx context.Context, g registry.Group) ([]registry.Stored, error) {
	return f.read(ctx, g)
}

func (f *fake) Write(ctx context.Context, c registry.Change) error {
	f.writes.Add(1)
	return f.write(ctx, c)
}

func (f *fake) Capabilities() registry.Capabilities {
	c := f.Target.Capabilities()
	c.VerifyAfter, c.Admission = f.verify, func() error { return f.admission }
	return c
}

// forgetful makes the target confirm the first writes and lose them, like a Nacos that is
// starting. The target is read back a second after a write.
func (s *story) forgetful(writes int64) *story {
	f := s.target
	f.verify = time.Second
	f.write = func(ctx context.Context, c registry.Change) error {
		if f.writes.Load() <= writes {
			return nil
		}
		return f.Target.Write(ctx, c)
	}
	return s
}

// shared is a target in which each replica publishes for itself.
type shared struct{ *fake }

func (s shared) Capabilities() registry.Capabilities {
	c := s.fake.Capabilities()
	c.Shared = true
	return c
}

// sharedRecorder is a shared target that keeps records.
type sharedRecorder struct{ *recorder }

func (s sharedRecorder) Capabilities() registry.Capabilities {
	c := s.recorder.Capabilities()
	c.Shared = true
	return c
}

// sessionless is a target whose entries outlive the process that wrote them.
type sessionless struct{ *fake }

func (s sessionless) Capabilities() registry.Capabilities {
	c := s.fake.Capabilities()
	c.Sessions, c.Lost = false, nil
	return c
}

// expired is a target whose sessions ended for good.
type expired struct{ *fake }

func (e expired) Capabilities() registry.Capabilities {
	c, lost := e.fake.Capabilities(), make(chan struct{})
	close(lost)
	c.Lost = lost
	return c
}

// serving is a target that answers readers of its own.
type serving struct {
	*fake
	completed int
	held      []registry.Entry // when it was first
}

func (s *serving) Capabilities() registry.Capabilities {
	c := s.fake.Capabilities()
	c.SourcesComplete = s.sourcesComplete
	return c
}

func (s *serving) sourcesComplete() {
	if s.completed++; s.completed == 1 {
		s.held = s.Entries()
	}
}

// A picky target refuses some keys and writes the others, or nothing if it names none.
type picky struct {
	*fake
	unnamed bool
	rule    atomic.Pointer[func(key string) bool]
}

func (p *picky) refuse(rule func(key string) bool) { p.rule.Store(&rule) }

func (p *picky) accept() { p.refuse(func(string) bool { return false }) }

func (p *picky) Write(ctx context.Context, c registry.Change) error {
	refuses := *p.rule.Load()
	refused := make(registry.Refused)
	for _, w := range c.Put {
		if refuses(w.New.Key) {
			refused[w.New.Key] = errors.New("it may not be written")
		}
	}
	for _, h := range c.Delete {
		if refuses(h.Key) {
			refused[h.Key] = errors.New("it may not be deleted")
		}
	}
	for _, e := range c.Want { // Want has to be what the target will store
		if refuses(e.Key) && !refused.Has(e.Key) {
			return fmt.Errorf("%s is wanted and not written", e.Key)
		}
	}
	if p.unnamed && len(refused) > 0 {
		p.writes.Add(1)
		return fmt.Errorf("%w: something of it", registry.ErrRefused)
	}
	if err := p.fake.Write(ctx, c.Except(refused)); err != nil {
		return err
	}
	return refused.Err()
}

// A recorder is a target that keeps records, as one process reaches them.
type recorder struct {
	*fake
	*records

	ahead time.Duration // of the clock of those who write here
	late  atomic.Int64  // how many nanoseconds a call lasts
	away  atomic.Bool   // nothing can be recorded
	full  atomic.Bool   // whatever is to be recorded is refused
}

// records are texts by kind and name, which several processes share.
type records struct {
	mu     sync.Mutex
	texts  bridge.Records
	reads  int
	denied string // the name of a record that may not be read or written
	unread string // a kind that cannot be read
}

const never = 1000 * time.Hour

var errDenied = fmt.Errorf("%w: not authenticated", registry.ErrRefused)

func (r *recorder) Capabilities() registry.Capabilities {
	c := r.fake.Capabilities()
	c.Records = r
	return c
}

func (r *recorder) Records(ctx context.Context, kind string) (map[string]string, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	if kind == r.unread && kind != "" {
		return nil, errDown
	}
	all := maps.Clone(r.texts[kind])
	for name, text := range all {
		all[name] = later(text, -r.ahead)
	}
	if _, there := all[r.denied]; there && r.denied != "" {
		delete(all, r.denied)
		return all, errDenied
	}
	return all, nil
}

func (r *recorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	if err := r.wait(ctx); err != nil || r.away.Load() {
		return cmp.Or(err, errDown)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	refused := make(registry.Refused)
	for name, text := range texts {
		if name == r.denied && r.denied != "" || r.full.Load() {
			refused[name] = errDenied
			continue
		}
		r.texts.Store(kind, name, later(text, r.ahead))
	}
	return refused.Err()
}

func (r *recorder) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(r.late.Load())):
	}
	return ctx.Err()
}

// lose makes a kind of records unreadable; empty: all are readable.
func (r *records) lose(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread = kind
}

func (r *records) put(kind, name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts.Store(kind, name, text)
}

// deny makes the record of a name unreadable and unwritable.
func (r *records) deny(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = name
}

func (r *records) decisions() int { return len(r.texts["decisions"]) }

// later returns a record that says it was written so much later.
func later(text string, by time.Duration) string {
	fields := make(map[string]json.RawMessage)
	var at time.Time
	if by == 0 || json.Unmarshal([]byte(text), &fields) != nil || json.Unmarshal(fields["at"], &at) != nil {
		return text
	}
	fields["at"], _ = json.Marshal(at.Add(by))
	out, _ := json.Marshal(fields)
	return string(out)
}

type election struct {
	changed chan struct{}
	now     atomic.Pointer[bridge.Leadership]
	ready   bridge.Leadership // as reported last
}

// Leadership answers as a lease does: a leadership ends with its time.
func (e *election) Leadership() bridge.Leadership {
	l := *e.now.Load()
	if l.Role == bridge.RoleLeader && !l.Until.IsZero() && !time.Now().Before(l.Until) {
		l.Role = bridge.RoleStandby
	}
	return l
}

func (e *election) Changed() <-chan struct{} { return e.changed }

func (e *election) Ready(l bridge.Leadership) { e.ready = l }

// becomes changes the leadership of a story and notifies its loop.
func (s *story) becomes(l bridge.Leadership) *story {
	s.election.now.Store(&l)
	select {
	case s.election.changed <- struct{}{}:
	default:
	}
	return s
}

func (s *story) ready(want bridge.Leadership) *story {
	s.Helper()
	return s.is("Ready()", s.election.ready, want)
}

func leader(term int64) bridge.Leadership {
	return bridge.Leadership{Role: bridge.RoleLeader, Term: term, Leader: "me"}
}

func standby(term int64) bridge.Leadership {
	return bridge.Leadership{Role: bridge.RoleStandby, Term: term, Leader: "other"}
}

// drained returns how many records of drained addresses there are.
func (r *records) drained() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.texts["drained"])
}
