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

// A Store stores objects of the kinds serviceentry.ObjectKind and serviceentry.RuleKind, and
// the bridge's records. It is safe for use by many goroutines.
type Store interface {
	objectStore

	// Recorder returns the recorder of an owner. Its records are in the same namespace or
	// directory as the objects.
	Recorder(owner, namespace string) registry.Recorder

	// Try returns an error if an object of a kind could not be stored in a namespace. It
	// stores none.
	Try(ctx context.Context, kind, namespace string) error
}

type objectStore interface {
	// List returns the objects of a kind in a namespace, of any owner. An object that
	// cannot be parsed has only its name. Other objects may be without their endpoints.
	List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error)

	// Get returns an object, or nil if it does not exist.
	Get(ctx context.Context, kind, namespace, name string) (*serviceentry.Object, error)

	// Put creates an object if it has no version. Otherwise it replaces the stored object
	// of the same version. The error is registry.ErrConflict if the stored object has
	// another version, and registry.ErrRefused if a retry cannot help.
	Put(ctx context.Context, o serviceentry.Object) error

	// Delete deletes the stored object of the same version, with the errors of Put.
	Delete(ctx context.Context, o serviceentry.Object) error
}

// Options tune a Target.
type Options struct {
	Owner     string       // the owner's name
	Namespace string       // of all objects
	VIPs      netip.Prefix // the virtual addresses that codecs request; the zero value: none
	Log       *slog.Logger // nil: nothing is logged

	// Accepts reports whether objects of another owner, or without an owner's mark (""), may
	// be written and deleted too. If nil, none may.
	Accepts func(owner string) bool

	// MaxObject bounds an object in bytes of JSON. 0 means 1 MiB: etcd limits a request to
	// 1.5 MiB.
	MaxObject int

	// Rules tells the target to write the DestinationRules that services request. Without
	// it no DestinationRule is read or written.
	Rules bool
}

// Kinds returns the kinds of objects that a target reads and writes.
func (o Options) Kinds() []string {
	if o.Rules {
		return []string{serviceentry.ObjectKind, serviceentry.RuleKind}
	}
	return []string{serviceentry.ObjectKind}
}

// maxObject is the default of MaxObject. It leaves room for the fields that the API server
// adds.
const maxObject = 1 << 20

// A Target stores each group as one ServiceEntry and, if the group has an entry with
// serviceentry.SubsetsKey, as a DestinationRule. It never changes or deletes an object
// without the owner's mark, unless Options.Accepts allows it. It is safe for use by many
// goroutines.
type Target struct {
	registry.Recorder

	// Immutable.
	o     Options
	owner string // the owner's mark
	store Store

	// Guarded by mu.
	mu        sync.Mutex
	addresses map[netip.Addr]string // name of the object that has the address
	state     State

	// Guarded by mu: results of the last call of Groups. otherNames has, by kind and host,
	// the name of an object that is not named after its host. unread has the names of
	// objects or files that could not be parsed.
	otherNames map[objectRef]string
	unread     []string
}

// NewTarget returns a target over a store.
func NewTarget(store Store, o Options) *Target {
	if o.MaxObject == 0 {
		o.MaxObject = maxObject
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Target{
		Recorder: store.Recorder(o.Owner, o.Namespace), o: o, owner: metadata.OwnerMark(o.Owner), store: store,
		addresses: make(map[netip.Addr]string),
	}
}

// Capabilities implements registry.Target.
func (t *Target) Capabilities() registry.Capabilities {
	return registry.Capabilities{Records: t.Recorder}
}

// Groups implements registry.Target. It leaves out objects that cannot be parsed, and logs
// their names. Reading or writing their groups is refused.
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
	t.otherNames = make(map[objectRef]string)
	t.logUnread(all)
	for _, o := range all {
		t.recordAddresses(o)
		name, isRule := o.Metadata.Name, o.Kind == serviceentry.RuleKind
		other := t.recordOtherNames(o)
		// A rule counts too, because its ServiceEntry may have been deleted.
		if o.Kind != "" && !o.Elsewhere && !names[name] && (!isRule || !other) {
			groups, names[name] = append(groups, o.Group()), true
		}
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return groups, nil
}

// logUnread logs the names of the objects that could not be parsed whenever they change.
// The caller holds mu.
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
		t.o.Log.Warn("objects that cannot be read are left out; repair or delete them",
			"count", len(names), "names", names[:min(len(names), maxLoggedNames)])
	}
}

// maxLoggedNames bounds the names in one log message.
const maxLoggedNames = 10

// list returns the objects of a kind. If our account may neither list nor get rules, it
// returns none: writing a rule is refused then.
func (t *Target) list(ctx context.Context, kind string) ([]serviceentry.Object, error) {
	all, err := t.store.List(ctx, kind, t.o.Namespace)
	if kind != serviceentry.RuleKind || !errors.Is(err, registry.ErrRefused) {
		return all, err
	}
	// Any name does: the question is whether Get is refused.
	if _, getErr := t.store.Get(ctx, kind, t.o.Namespace, t.o.Namespace); !errors.Is(getErr, registry.ErrRefused) {
		return nil, err
	}
	return nil, nil
}

// recordOtherNames records the hosts of an object that is not named after them, and reports
// whether there are any. The caller holds mu.
func (t *Target) recordOtherNames(o serviceentry.Object) (other bool) {
	for _, host := range slices.Concat(o.Spec.Hosts, []string{o.Spec.Host}) {
		if host != "" && (o.Elsewhere || host != o.Metadata.Name) {
			t.otherNames[objectRef{o.Kind, t.o.Namespace, host}], other = o.Metadata.Name, true
		}
	}
	return other
}

// otherName returns the name of an object that has the host but is not named after it, and
// whether there is one.
func (t *Target) otherName(kind, host string) (name string, there bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, there = t.otherNames[objectRef{kind, t.o.Namespace, host}]
	return name, there
}

// Read implements registry.Target. An object that has the host but is not named after it is
// returned as a foreign entry, so that it conflicts with ours.
func (t *Target) Read(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	if err := t.checkGroup(ctx, group); err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	s, err := t.readGroup(ctx, group)
	t.recordCall(err)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", group, err)
	}
	var stored []registry.Stored
	for _, e := range s.entries(t.o.VIPs) {
		e.Group = group
		stored = append(stored, registry.Stored{Entry: e, Owner: s.owner(e.Key), Live: true})
	}
	kindOfKey := map[string]string{
		serviceentry.HeaderKey: serviceentry.ObjectKind, serviceentry.SubsetsKey: serviceentry.RuleKind,
	}
	for key, kind := range kindOfKey {
		// Foreign even with our mark, because we name objects after their host.
		if name, there := t.otherName(kind, group.Name); there {
			e := registry.Entry{Group: group, Key: key, Value: kind + " " + name}
			stored = append(stored, registry.Stored{Entry: e, Live: true})
		}
	}
	slices.SortStableFunc(stored, func(a, b registry.Stored) int { return a.Compare(b.Entry) })
	return stored, nil
}

// A storedGroup has the objects that store a group.
type storedGroup struct {
	service   *serviceentry.Object // nil if it does not exist
	rule      *serviceentry.Object // nil if it does not exist, or rules are not read
	ruleError error                // the refusal to read the rule
}

// readGroup reads the objects of a group. If reading the rule is refused, readGroup
// returns no error but sets ruleError.
func (t *Target) readGroup(ctx context.Context, group registry.Group) (s storedGroup, err error) {
	if s.service, err = t.store.Get(ctx, serviceentry.ObjectKind, group.Namespace, group.Name); err != nil || !t.o.Rules {
		return s, err
	}
	s.rule, err = t.store.Get(ctx, serviceentry.RuleKind, group.Namespace, group.Name)
	if errors.Is(err, registry.ErrRefused) {
		s.ruleError = err
		return s, nil
	}
	return s, err
}

// entries returns the entries of the group, sorted by key.
func (s storedGroup) entries(vips netip.Prefix) (all []registry.Entry) {
	if s.service != nil {
		all = s.service.Entries(vips)
	}
	if s.rule != nil {
		all = registry.Sorted(append(all, s.rule.SubsetsEntry(s.service)))
	}
	return all
}

// withoutUnreadRule returns the change without the entry of a rule that may not be read.
func (s storedGroup) withoutUnreadRule(c registry.Change) registry.Change {
	if s.ruleError == nil {
		return c
	}
	return c.Without(func(key string) bool { return key == serviceentry.SubsetsKey })
}

// owner returns the owner's mark on the object that stores the entry of a key.
func (s storedGroup) owner(key string) string {
	if key == serviceentry.SubsetsKey {
		return s.rule.Owner()
	}
	return s.service.Owner()
}

// checkGroup returns an error if ctx has ended or this target cannot store the group.
func (t *Target) checkGroup(ctx context.Context, group registry.Group) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if group.Kind != serviceentry.Kind || group.Namespace != t.o.Namespace {
		return fmt.Errorf("%w: no ServiceEntry of namespace %s", registry.ErrRefused, t.o.Namespace)
	}
	return nil
}

// assignAddress returns the virtual address that a service already has. A new service gets
// the first of its choices that no other service has. The address is invalid if the service
// requests none, or none is left.
func (t *Target) assignAddress(before *serviceentry.Object, host string, entries []registry.Entry) netip.Addr {
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
			t.addresses[at] = host // before the write, because other services are written concurrently
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

// freeAddresses frees the addresses of a deleted object.
func (t *Target) freeAddresses(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, by := range t.addresses {
		if by == name {
			delete(t.addresses, at)
		}
	}
}

// State is the result of the last call of a store.
type State struct {
	Err   error     // nil if the store answered, even if it refused an object
	At    time.Time // time of the call; zero before the first
	Since time.Time // time of the first call since which all failed, or all succeeded
}

// State returns the result of the last call.
func (t *Target) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// recordCall records the result of a call. A refusal or conflict counts as success.
func (t *Target) recordCall(err error) {
	if errors.Is(err, registry.ErrRefused) || errors.Is(err, registry.ErrConflict) {
		err = nil
	}
	t.setState(err)
}

func (t *Target) setState(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = t.state.afterCall(err, time.Now())
}

// afterCall returns the state after one more call.
func (s State) afterCall(err error, now time.Time) State {
	if (s.Err == nil) != (err == nil) || s.Since.IsZero() {
		s.Since = now
	}
	s.Err, s.At = err, now
	return s
}
