// Package kubernetes stores services of registries as ServiceEntries: as objects of
// a Kubernetes API, or as files of a directory that istiod, Git or Argo CD reads.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Store holds objects of the kinds serviceentry.ObjectKind and serviceentry.RuleKind,
// and records beside them. It is safe for use by many goroutines.
type Store interface {
	objectStore

	// Recorder returns the recorder of an owner, beside the objects of a namespace.
	Recorder(owner, namespace string) registry.Recorder

	// Try reports whether an object of a kind could be stored in a namespace, without
	// storing one.
	Try(ctx context.Context, kind, namespace string) error
}

type objectStore interface {
	// List returns the objects of a kind and a namespace, whoever owns them. Of those
	// that cannot be read it returns the name alone. The others may be without their
	// endpoints.
	List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error)

	// Get returns an object, nil if there is none.
	Get(ctx context.Context, kind, namespace, name string) (*serviceentry.Object, error)

	// Put creates an object without a version, and replaces the object of its version.
	// The error is registry.ErrConflict if that is another by now, and
	// registry.ErrRefused if a repetition cannot help.
	Put(ctx context.Context, o serviceentry.Object) error

	// Delete deletes an object as it was read, with the errors of Put.
	Delete(ctx context.Context, o serviceentry.Object) error
}

// Options tune a Target.
type Options struct {
	Owner     string                  // the owner's name
	Namespace string                  // of all objects
	VIPs      netip.Prefix            // the range of the codecs that write here; the zero value: none
	Accepts   func(owner string) bool // reports whether objects with another owner's mark, or none (""), may be written too; nil: none
	MaxObject int                     // bytes of an object in JSON; 0 is 1 MiB, as etcd limits a request to 1.5 MiB
	Log       *slog.Logger            // nil: none
	Rules     bool                    // write the DestinationRules that services ask for; else none is read
}

// Kinds returns the kinds of objects that a target keeps.
func (o Options) Kinds() []string {
	if o.Rules {
		return []string{serviceentry.ObjectKind, serviceentry.RuleKind}
	}
	return []string{serviceentry.ObjectKind}
}

// maxObject leaves room for what the API server adds.
const maxObject = 1 << 20

// A Target stores each group as one ServiceEntry and, if it has an entry of
// serviceentry.SubsetsKey, a DestinationRule. An object without the owner's mark is
// never written or deleted.
type Target struct {
	registry.Recorder

	o     Options
	owner string // as registry.Stored.Owner has it
	store Store

	mu        sync.Mutex
	addresses map[netip.Addr]string // by address: the name of the object that has it
	others    map[objectRef]string  // by host: the name of an object that has another name, as listed last
	unread    []string              // objects or files that could not be read when they were listed last
	state     State
}

// NewTarget returns a target over a store.
func NewTarget(store Store, o Options) *Target {
	if o.MaxObject == 0 {
		o.MaxObject = maxObject
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Target{Recorder: store.Recorder(o.Owner, o.Namespace), o: o, owner: metadata.OwnerMark(o.Owner), store: store, addresses: make(map[netip.Addr]string)}
}

// Capabilities implements registry.Target.
func (t *Target) Capabilities() registry.Capabilities {
	return registry.Capabilities{Records: t.Recorder}
}

// Groups implements registry.Target. It leaves out objects that cannot be read, and logs
// their names. To read or write their hosts is refused.
func (t *Target) Groups(ctx context.Context) ([]registry.Group, error) {
	var all []serviceentry.Object
	for _, kind := range t.o.Kinds() {
		list, err := t.list(ctx, kind)
		t.setState(err)
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
	t.others = make(map[objectRef]string)
	t.logUnread(all)
	for _, o := range all {
		t.recordAddresses(o)
		name, isRule := o.Metadata.Name, o.Kind == serviceentry.RuleKind
		other := t.recordOther(o)
		if o.Kind != "" && !o.Elsewhere && !names[name] && (!isRule || !other) { // a rule alone: its ServiceEntry is gone
			groups, names[name] = append(groups, o.Group()), true
		}
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return groups, nil
}

// logUnread logs which objects of a list cannot be read whenever these are others. The
// caller holds mu.
func (t *Target) logUnread(all []serviceentry.Object) {
	var names []string
	for _, o := range all {
		if o.Kind == "" {
			names = append(names, o.Metadata.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	before := t.unread
	t.unread = names
	switch {
	case slices.Equal(names, before):
	case len(names) == 0:
		t.o.Log.Info("all objects can be read again")
	default:
		t.o.Log.Warn("objects that cannot be read are left out; repair or delete them", "count", len(names), "names", names[:min(len(names), shownUnread)])
	}
}

// shownUnread is how many names of objects are logged.
const shownUnread = 10

// list returns the objects of a kind. If rules may be neither listed nor read, there are
// none: to write one is refused.
func (t *Target) list(ctx context.Context, kind string) ([]serviceentry.Object, error) {
	all, err := t.store.List(ctx, kind, t.o.Namespace)
	if kind != serviceentry.RuleKind || !errors.Is(err, registry.ErrRefused) {
		return all, err
	}
	if _, read := t.store.Get(ctx, kind, t.o.Namespace, t.o.Namespace); !errors.Is(read, registry.ErrRefused) { // of any name
		return nil, err
	}
	return nil, nil
}

// recordOther records the hosts of an object that has another name, and reports whether
// there are any. The caller holds mu.
func (t *Target) recordOther(o serviceentry.Object) (other bool) {
	for _, host := range slices.Concat(o.Spec.Hosts, []string{o.Spec.Host}) {
		if host != "" && (o.Elsewhere || host != o.Metadata.Name) {
			t.others[objectRef{o.Kind, t.o.Namespace, host}], other = o.Metadata.Name, true
		}
	}
	return other
}

// other returns the name of an object of a kind and a host that has another name.
func (t *Target) other(kind, host string) (name string, there bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, there = t.others[objectRef{kind, t.o.Namespace, host}]
	return name, there
}

// Read implements registry.Target. An object of the host with another name is read as a
// foreign entry, with which ours is in conflict.
func (t *Target) Read(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	if err := t.check(ctx, group); err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	s, err := t.get(ctx, group)
	t.answered(err)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	var held []registry.Stored
	for _, e := range s.entries(t.o.VIPs) {
		e.Group = group
		held = append(held, registry.Stored{Entry: e, Owner: s.owner(e.Key), Live: true})
	}
	for key, kind := range map[string]string{serviceentry.HeaderKey: serviceentry.ObjectKind, serviceentry.SubsetsKey: serviceentry.RuleKind} {
		if name, there := t.other(kind, group.Name); there { // even with our mark: ours have the name of the host
			held = append(held, registry.Stored{Entry: registry.Entry{Group: group, Key: key, Value: kind + " " + name}, Live: true})
		}
	}
	slices.SortStableFunc(held, func(a, b registry.Stored) int { return a.Compare(b.Entry) })
	return held, nil
}

// A storedGroup is the objects that store a group.
type storedGroup struct {
	service *serviceentry.Object // nil: there is none
	rule    *serviceentry.Object // nil: there is none, or none is read
	unread  error                // why the rule may not be read; nil: it may
}

func (t *Target) get(ctx context.Context, group registry.Group) (s storedGroup, err error) {
	if s.service, err = t.store.Get(ctx, serviceentry.ObjectKind, group.Namespace, group.Name); err != nil || !t.o.Rules {
		return s, err
	}
	s.rule, err = t.store.Get(ctx, serviceentry.RuleKind, group.Namespace, group.Name)
	if errors.Is(err, registry.ErrRefused) {
		s.unread = err
		return s, nil
	}
	return s, err
}

// entries returns the entries that the objects store, in order.
func (s storedGroup) entries(vips netip.Prefix) (all []registry.Entry) {
	if s.service != nil {
		all = s.service.Entries(vips)
	}
	if s.rule != nil {
		all = registry.Sorted(append(all, s.rule.SubsetsEntry(s.service)))
	}
	return all
}

// readPart returns a change without a rule that could not be read.
func (s storedGroup) readPart(c registry.Change) registry.Change {
	if s.unread == nil {
		return c
	}
	return c.Without(func(key string) bool { return key == serviceentry.SubsetsKey })
}

// owner returns the owner of the object that stores an entry.
func (s storedGroup) owner(key string) string {
	if key == serviceentry.SubsetsKey {
		return s.rule.Owner()
	}
	return s.service.Owner()
}

// check returns an error for a group that cannot be stored here.
func (t *Target) check(ctx context.Context, group registry.Group) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if group.Kind != serviceentry.Kind || group.Namespace != t.o.Namespace {
		return fmt.Errorf("%w: no ServiceEntry of namespace %s", registry.ErrRefused, t.o.Namespace)
	}
	return nil
}

// address returns the address of a service: the one that it has or, for a new one, the
// first of its choices that no other service has.
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
		if by, used := t.addresses[at]; !used || by == host {
			t.addresses[at] = host // at once: other services are written at the same time
			return at
		}
	}
}

// recordAddresses records the addresses of an object. The caller holds mu.
func (t *Target) recordAddresses(o serviceentry.Object) {
	for _, text := range o.Spec.Addresses {
		if at, err := netip.ParseAddr(text); err == nil {
			t.addresses[at] = o.Metadata.Name
		}
	}
}

func (t *Target) freeAddresses(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, by := range t.addresses {
		if by == name {
			delete(t.addresses, at)
		}
	}
}

// State is the result of the last reading or writing of a store.
type State struct {
	Err   error     // nil: it was answered, even if an object was refused
	At    time.Time // when; zero: there was none yet
	Since time.Time // since when there is an error, or none
}

// State returns the result of the last call.
func (t *Target) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

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

func (s State) after(err error, now time.Time) State {
	if (s.Err == nil) != (err == nil) || s.Since.IsZero() {
		s.Since = now
	}
	s.Err, s.At = err, now
	return s
}
