package bridge_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A fake is a target that does something else in place of some calls.
type fake struct {
	*memory.Target
	read  func(context.Context, registry.Group) ([]registry.Held, error)
	write func(context.Context, registry.Change) error
}

func (f *fake) Read(ctx context.Context, g registry.Group) ([]registry.Held, error) {
	if f.read != nil {
		return f.read(ctx, g)
	}
	return f.Target.Read(ctx, g)
}

func (f *fake) Write(ctx context.Context, c registry.Change) error {
	if f.write != nil {
		return f.write(ctx, c)
	}
	return f.Target.Write(ctx, c)
}

func (s *story) fake() *fake {
	s.make()
	return &fake{Target: s.target}
}

// verified is a target that is read back a second after a write.
type verified struct{ *fake }

func (verified) VerifyAfter() time.Duration { return time.Second }

// forgetful is one that confirms the first writes and keeps nothing of them, as a
// Nacos does that is starting.
func (s *story) forgetful(writes int32) verified {
	f := s.fake()
	var seen atomic.Int32
	f.write = func(ctx context.Context, c registry.Change) error {
		if seen.Add(1) <= writes {
			return nil
		}
		return f.Target.Write(ctx, c)
	}
	return verified{f}
}

// admitting is a target that is not sure yet whether another writes there.
type admitting struct {
	*memory.Target
	admitted atomic.Bool
}

func (a *admitting) Admission() error {
	if a.admitted.Load() {
		return nil
	}
	return errDown
}

// shared is a target in which each replica publishes for itself.
type shared struct{ *memory.Target }

func (shared) Shared() {}

// sharedRecorder is one that keeps records.
type sharedRecorder struct{ *recorder }

func (sharedRecorder) Shared() {}

// expired is a target whose sessions ended for good.
type expired struct{ *memory.Target }

func (expired) Lost() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// serving is a target that answers readers of its own.
type serving struct {
	*memory.Target
	completed atomic.Int32
	held      []registry.Entry // when it was first
}

func (s *serving) SourcesComplete() {
	if s.completed.Add(1) == 1 {
		s.held = s.Entries()
	}
}

// A picky target refuses some keys and does the rest, or nothing where it names none.
type picky struct {
	*memory.Target
	unnamed bool
	writes  atomic.Int64
	rule    atomic.Pointer[func(key string) bool]
}

func (p *picky) refuse(rule func(key string) bool) { p.rule.Store(&rule) }

func (p *picky) accept() { p.refuse(func(string) bool { return false }) }

func (p *picky) Write(ctx context.Context, c registry.Change) error {
	p.writes.Add(1)
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
	for _, e := range c.Want { // what is reported of the whole has to be what will be there
		if refuses(e.Key) && !refused.Has(e.Key) {
			return fmt.Errorf("%s is wanted and not written", e.Key)
		}
	}
	if p.unnamed && len(refused) > 0 {
		return fmt.Errorf("%w: something of it", registry.ErrRefused)
	}
	if err := p.Target.Write(ctx, c.Except(refused)); err != nil {
		return err
	}
	return refused.Err()
}

// A recorder is a target that keeps records, as one process reaches them.
type recorder struct {
	*memory.Target
	*records

	ahead time.Duration // of the clock of those who write here
	late  atomic.Int64  // how many nanoseconds a call lasts
	away  atomic.Bool   // nothing can be recorded
}

// records are texts by kind and name, which several processes share.
type records struct {
	mu     sync.Mutex
	texts  map[string]map[string]string
	reads  int
	writes int
	denied string // a name: what is kept under it may not be read or written
}

const never = 1000 * time.Hour

var errDenied = fmt.Errorf("%w: not authenticated", registry.ErrRefused)

func (r *recorder) Records(ctx context.Context, kind string) (map[string]string, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
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

func (r *recorder) Record(ctx context.Context, kind, name, text string) error {
	if err := r.wait(ctx); err != nil || r.away.Load() {
		return cmp.Or(err, errDown)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == r.denied && r.denied != "" {
		return errDenied
	}
	r.writes++
	r.store(kind, name, later(text, r.ahead))
	return nil
}

func (r *recorder) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(r.late.Load())):
	}
	return ctx.Err()
}

func (r *records) put(kind, name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store(kind, name, text)
}

func (r *records) store(kind, name, text string) {
	if r.texts[kind] == nil {
		r.texts[kind] = make(map[string]string)
	}
	r.texts[kind][name] = text
	if text == "" {
		delete(r.texts[kind], name)
	}
}

// deny has what is kept under a name be denied.
func (r *records) deny(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = name
}

func (r *records) decisions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.texts["decisions"])
}

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

	mu    sync.Mutex
	now   bridge.Leadership
	ready bridge.Leadership // as reported last
}

// Leadership answers as a lease does: what was won ends with its time.
func (e *election) Leadership() bridge.Leadership {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.now
	if l.Role == bridge.RoleLeader && !l.Until.IsZero() && !time.Now().Before(l.Until) {
		l.Role = bridge.RoleStandby
	}
	return l
}

func (e *election) Changed() <-chan struct{} { return e.changed }

func (e *election) Ready(l bridge.Leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready = l
}

// becomes changes the leadership before anybody is notified.
func (e *election) becomes(l bridge.Leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = l
}

// becomes changes the leadership of a story and notifies its loop.
func (s *story) becomes(l bridge.Leadership) *story {
	s.election.becomes(l)
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
