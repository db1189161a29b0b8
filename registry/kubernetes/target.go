// Package kubernetes keeps services of registries as ServiceEntries: as objects of
// a Kubernetes API, or as files of a directory that istiod, Git or Argo CD read.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Store holds objects of the kinds serviceentry.ObjectKind and serviceentry.RuleKind.
// Its calls may run at the same time.
type Store interface {
	// List returns the objects of a kind and a namespace, whoever owns them. Of one
	// that cannot be read it returns the name alone.
	List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error)

	// Get returns an object; nil where there is none.
	Get(ctx context.Context, kind, namespace, name string) (*serviceentry.Object, error)

	// Put stores an object. Where that has a version, it replaces the object of that
	// version; else there must be none. The error is registry.ErrConflict where
	// that is not so, and registry.ErrRefused where a repetition cannot help.
	Put(ctx context.Context, o serviceentry.Object) error

	// Delete deletes an object as it was got, with errors as those of Put.
	Delete(ctx context.Context, o serviceentry.Object) error
}

// A Storage is a Store beside whose objects records are kept.
type Storage interface {
	Store

	// Recorder returns what keeps records of an owner beside the objects of a namespace.
	Recorder(owner, namespace string) registry.Recorder
}

// A Probe reports whether an object of a kind could be stored in a namespace. It stores
// none.
type Probe interface {
	Try(ctx context.Context, kind, namespace string) error
}

// Options tune a Target.
type Options struct {
	Owner     string                  // the owner's name
	Namespace string                  // of all objects
	VIPs      netip.Prefix            // the range of the codecs that write here; the zero value: none
	Takes     func(owner string) bool // reports whether objects of another owner, by its mark, or of nobody (""), may be written too; nil: none
	MaxObject int                     // bytes of an object in JSON; 0 is 1 MiB, as etcd takes 1.5 MiB of a request
	Rules     bool                    // keep a DestinationRule beside a ServiceEntry where one is asked for; else none is looked at
}

// Kinds returns the kinds of objects that a target keeps.
func (o Options) Kinds() []string {
	if o.Rules {
		return []string{serviceentry.ObjectKind, serviceentry.RuleKind}
	}
	return []string{serviceentry.ObjectKind}
}

// maxObject leaves room below etcd's limit for what the API server adds.
const maxObject = 1 << 20

// A Target keeps each group as one ServiceEntry and, where it has an entry of
// serviceentry.SubsetsKey, a DestinationRule. An object that does not carry the owner's
// mark is never written or deleted.
type Target struct {
	registry.Recorder

	o     Options
	owner string // as registry.Held.Owner has it
	store Store

	mu        sync.Mutex
	addresses map[netip.Addr]string // of services: the name of the object that has it
	others    map[ref]string        // names of objects that have another name than their host, by that host, as they were listed last
	state     State
}

// NewTarget returns a target over a store.
func NewTarget(store Storage, o Options) *Target {
	if o.MaxObject == 0 {
		o.MaxObject = maxObject
	}
	t := &Target{Recorder: store.Recorder(o.Owner, o.Namespace), o: o, owner: metadata.OwnerMark(o.Owner), addresses: make(map[netip.Addr]string)}
	t.store = observed{store, t}
	return t
}

// Groups implements registry.Target. What cannot be read is left out, and refused where
// its host is read or written.
func (t *Target) Groups(ctx context.Context) ([]registry.Group, error) {
	var all []serviceentry.Object
	for _, kind := range t.o.Kinds() {
		list, err := t.list(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		all = append(all, list...)
	}
	groups := make([]registry.Group, 0, len(all))
	names := make(map[string]bool, len(all))
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.addresses)
	t.others = make(map[ref]string)
	for _, o := range all {
		t.note(o)
		name, isRule := o.Metadata.Name, o.Kind == serviceentry.RuleKind
		other := t.noteOther(o)
		if o.Kind != "" && !o.Elsewhere && !names[name] && (!isRule || !other) { // a rule alone is left of a ServiceEntry
			groups, names[name] = append(groups, o.Group()), true
		}
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return groups, nil
}

// list returns the objects of a kind. Rules that may be neither listed nor read cost
// nothing else: then none is written, and a writing says why.
func (t *Target) list(ctx context.Context, kind string) ([]serviceentry.Object, error) {
	all, err := t.store.List(ctx, kind, t.o.Namespace)
	if kind != serviceentry.RuleKind || !errors.Is(err, registry.ErrRefused) {
		return all, err //nolint:wrapcheck // Groups says what it did
	}
	if _, read := t.store.Get(ctx, kind, t.o.Namespace, t.o.Namespace); !errors.Is(read, registry.ErrRefused) { // of any name
		return nil, err //nolint:wrapcheck // Groups says what it did
	}
	return nil, nil
}

// noteOther notes the hosts of an object that has another name, and reports whether it
// has any. The caller holds mu.
func (t *Target) noteOther(o serviceentry.Object) (other bool) {
	for _, host := range slices.Concat(o.Spec.Hosts, []string{o.Spec.Host}) {
		if host != "" && (o.Elsewhere || host != o.Metadata.Name) {
			t.others[ref{o.Kind, t.o.Namespace, host}], other = o.Metadata.Name, true
		}
	}
	return other
}

// other returns the name of an object of a kind and a host that has another name.
func (t *Target) other(kind, host string) (name string, there bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, there = t.others[ref{kind, t.o.Namespace, host}]
	return name, there
}

// Read implements registry.Target. An object of the host that has another name is read
// as an entry of nobody, beside which ours is a conflict.
func (t *Target) Read(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	if err := t.check(ctx, group); err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	s, err := t.get(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	var held []registry.Held
	for _, e := range s.entries(t.o.VIPs) {
		e.Group = group
		held = append(held, registry.Held{Entry: e, Owner: s.owner(e.Key), Live: true})
	}
	for key, kind := range map[string]string{serviceentry.HeaderKey: serviceentry.ObjectKind, serviceentry.SubsetsKey: serviceentry.RuleKind} {
		if name, there := t.other(kind, group.Name); there { // whoever copied our mark into it: it is not where ours are
			held = append(held, registry.Held{Entry: registry.Entry{Group: group, Key: key, Value: kind + " " + name}, Live: true})
		}
	}
	slices.SortStableFunc(held, func(a, b registry.Held) int { return a.Compare(b.Entry) })
	return held, nil
}

// stored is what a group is stored as.
type stored struct {
	service *serviceentry.Object // nil: there is none
	rule    *serviceentry.Object // nil: there is none, or it is not looked at
	unread  error                // why the rule may not be read, so that it is unknown; nil: it may
}

func (t *Target) get(ctx context.Context, group registry.Group) (s stored, err error) {
	if s.service, err = t.store.Get(ctx, serviceentry.ObjectKind, group.Namespace, group.Name); err != nil || !t.o.Rules {
		return s, err //nolint:wrapcheck // the caller names the group
	}
	s.rule, err = t.store.Get(ctx, serviceentry.RuleKind, group.Namespace, group.Name)
	if errors.Is(err, registry.ErrRefused) {
		s.unread = err
		return s, nil
	}
	return s, err //nolint:wrapcheck // the caller names the group
}

// entries returns what the objects were made of, in order.
func (s stored) entries(vips netip.Prefix) (all []registry.Entry) {
	if s.service != nil {
		all = s.service.Entries(vips)
	}
	if s.rule != nil {
		all = registry.Sorted(append(all, s.rule.SubsetsEntry(s.service)))
	}
	return all
}

// readPart returns what a change does to what was read.
func (s stored) readPart(c registry.Change) registry.Change {
	if s.unread == nil {
		return c
	}
	return c.Without(func(key string) bool { return key == serviceentry.SubsetsKey })
}

// owner returns whose the object is that an entry is of.
func (s stored) owner(key string) string {
	if key == serviceentry.SubsetsKey {
		return s.rule.Owner()
	}
	return s.service.Owner()
}

// check reports whether a group can be here at all.
func (t *Target) check(ctx context.Context, group registry.Group) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if group.Kind != serviceentry.Kind || group.Namespace != t.o.Namespace {
		return fmt.Errorf("%w: no ServiceEntry of namespace %s", registry.ErrRefused, t.o.Namespace)
	}
	return nil
}

// address returns the address of a service: the one that it has or, for a service
// that is new, the first of its choices that no other one has.
func (t *Target) address(before *serviceentry.Object, host string, entries []registry.Entry) netip.Addr {
	h, err := serviceentry.ParseHeader(entries[0])
	if err != nil || h.VIP == "" || !t.o.VIPs.IsValid() {
		return netip.Addr{}
	}
	if before != nil && len(before.Spec.Addresses) == 1 {
		if have, err := netip.ParseAddr(before.Spec.Addresses[0]); err == nil && before.IsChoice(have, t.o.VIPs) {
			return have
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := 0; ; n++ {
		at := serviceentry.VIP(t.o.VIPs, h.Host, n)
		if !at.IsValid() {
			return at
		}
		if by, taken := t.addresses[at]; !taken || by == host {
			t.addresses[at] = host // at once: others are written at the same time
			return at
		}
	}
}

// note notes the address of an object. The caller holds mu.
func (t *Target) note(o serviceentry.Object) {
	for _, text := range o.Spec.Addresses {
		if at, err := netip.ParseAddr(text); err == nil {
			t.addresses[at] = o.Metadata.Name
		}
	}
}

// forget frees the addresses of an object that is gone.
func (t *Target) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, by := range t.addresses {
		if by == name {
			delete(t.addresses, at)
		}
	}
}

// State is how a target stands with its store.
type State struct {
	Err   error     // of the last call; nil: it was answered, if only by a refusal of one object
	At    time.Time // when that was; zero: there was none yet
	Since time.Time // since when it has been so
}

// State returns how the last call went.
func (t *Target) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// answered notes how a call went.
func (t *Target) answered(err error) {
	if errors.Is(err, registry.ErrRefused) || errors.Is(err, registry.ErrConflict) {
		err = nil
	}
	t.setState(err)
}

func (t *Target) setState(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = t.state.after(err, time.Now())
}

// after returns the state after a call.
func (s State) after(err error, now time.Time) State {
	if (s.Err == nil) != (err == nil) || s.Since.IsZero() {
		s.Since = now
	}
	s.Err, s.At = err, now
	return s
}

// observed is a store whose calls a target notes.
type observed struct {
	Store

	target *Target
}

func (s observed) List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error) {
	all, err := s.Store.List(ctx, kind, namespace)
	s.target.setState(err)
	return all, err //nolint:wrapcheck // handed on
}

func (s observed) Get(ctx context.Context, kind, namespace, name string) (*serviceentry.Object, error) {
	o, err := s.Store.Get(ctx, kind, namespace, name)
	s.target.answered(err)
	return o, err //nolint:wrapcheck // handed on
}

func (s observed) Put(ctx context.Context, o serviceentry.Object) error {
	err := s.Store.Put(ctx, o)
	s.target.answered(err)
	return err //nolint:wrapcheck // handed on
}

func (s observed) Delete(ctx context.Context, o serviceentry.Object) error {
	err := s.Store.Delete(ctx, o)
	s.target.answered(err)
	return err //nolint:wrapcheck // handed on
}
