// Package kubernetes keeps services of registries as ServiceEntries: as objects of
// a Kubernetes API, or as files of a directory that istiod, Git or Argo CD read.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

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
		all = registry.Sorted(slices.Values(append(all, s.rule.SubsetsEntry(s.service))))
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

// Write implements registry.Target.
func (t *Target) Write(ctx context.Context, c registry.Change) error {
	if err := t.write(ctx, c); err != nil {
		return fmt.Errorf("write %s: %w", c.Group, err)
	}
	return nil
}

func (t *Target) write(ctx context.Context, c registry.Change) error {
	if err := t.check(ctx, c.Group); err != nil {
		return err
	}
	before, refused, err := t.held(ctx, c)
	if err != nil {
		return err
	}
	for rest := c.Except(refused); !rest.Empty(); rest = c.Except(refused) {
		more, err := t.put(ctx, before, rest)
		if err != nil {
			return err
		}
		maps.Copy(refused, more)
		if len(more) == 0 || more.Has(serviceentry.SubsetsKey) { // which is the last to be tried
			break
		}
	}
	if before.unread != nil && hasRule(c) {
		refused[serviceentry.SubsetsKey] = before.unread
	}
	return refused.Err()
}

// hasRule reports whether a change is of a rule too.
func hasRule(c registry.Change) bool {
	return slices.ContainsFunc(c.Put, func(w registry.Write) bool { return w.New.Key == serviceentry.SubsetsKey }) ||
		slices.ContainsFunc(c.Delete, func(h registry.Held) bool { return h.Key == serviceentry.SubsetsKey })
}

// held returns what of a group is ours, and what of a change is refused because of
// what is not. It is an error where the change may not be applied at all.
func (t *Target) held(ctx context.Context, c registry.Change) (stored, registry.Refused, error) {
	refused := make(registry.Refused)
	for _, h := range c.Delete {
		if !t.may(h.Owner) {
			return stored{}, nil, fmt.Errorf("%w: entry %q is not ours", registry.ErrRefused, h.Key)
		}
	}
	s, err := t.get(ctx, c.Group)
	if err != nil {
		return stored{}, nil, err
	}
	if name, there := t.other(serviceentry.ObjectKind, c.Group.Name); there && s.service == nil && len(c.Put) > 0 {
		return stored{}, nil, fmt.Errorf("%w: the ServiceEntry %s has that host and is not ours: delete it, or leave the service out", registry.ErrRefused, name)
	}
	if s.service != nil && !t.may(s.service.Owner()) {
		return stored{}, nil, fmt.Errorf("%w: the ServiceEntry of that name is not ours: delete it, or leave the service out", registry.ErrRefused)
	}
	if s.rule != nil && !t.may(s.rule.Owner()) {
		s.rule = nil
		if slices.ContainsFunc(c.Put, func(w registry.Write) bool { return w.New.Key == serviceentry.SubsetsKey }) {
			refused[serviceentry.SubsetsKey] = fmt.Errorf("%w: the DestinationRule of that name is not ours: delete it, or keep the subsets in it", registry.ErrRefused)
		}
	}
	return s, refused, conditions(s.entries(t.o.VIPs), s.readPart(c.Except(refused)))
}

// may reports whether what belongs to an owner may be written.
func (t *Target) may(owner string) bool {
	return owner == t.owner || t.o.Takes != nil && t.o.Takes(owner)
}

// put brings what is stored to where a change wants it. Where it would be too large
// endpoints that are new are refused, and nothing is done.
func (t *Target) put(ctx context.Context, before stored, c registry.Change) (registry.Refused, error) {
	held := before.entries(t.o.VIPs)
	after := apply(held, c)
	if value, asked := find(after, serviceentry.SubsetsKey); len(after) == 0 || asked && len(after) == 1 { // it goes with its service
		if _, kept := find(held, serviceentry.SubsetsKey); asked && !kept {
			return registry.Refused{serviceentry.SubsetsKey: fmt.Errorf("%w: subsets without their service: %s", registry.ErrRefused, value)}, nil
		}
		return nil, t.delete(ctx, before)
	}
	next, refused, err := t.next(before, held, after, c)
	if err != nil || len(refused) > 0 {
		return refused, err
	}
	if before.service == nil || !next.Same(*before.service) {
		if err := t.store.Put(ctx, next); err != nil {
			return nil, err //nolint:wrapcheck // Write names the group
		}
	}
	t.mu.Lock()
	t.note(next)
	t.mu.Unlock()
	if before.unread != nil {
		return nil, nil //nolint:nilerr // write says it
	}
	return t.putRule(ctx, before.rule, next, after)
}

// next returns the ServiceEntry after a change, or what of the change it has no room for.
func (t *Target) next(before stored, held, after []registry.Entry, c registry.Change) (serviceentry.Object, registry.Refused, error) {
	if refused := surplus(held, after, c); len(refused) > 0 {
		return serviceentry.Object{}, refused, nil
	}
	next, err := serviceentry.NewObject(c.Group, after, t.address(before.service, c.Group.Name, after))
	if err != nil {
		return next, nil, fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	if before.service != nil {
		next.Metadata.UID, next.Metadata.ResourceVersion = before.service.Metadata.UID, before.service.Metadata.ResourceVersion
	}
	if size := len(metadata.JSON(next)); size > t.o.MaxObject {
		refused, err := tooLarge(c, size, t.o.MaxObject)
		return next, refused, err
	}
	return next, t.unlike(next, after), nil
}

// putRule brings the rule beside a service to what the entries ask for. That it is
// refused costs the rule alone.
func (t *Target) putRule(ctx context.Context, before *serviceentry.Object, service serviceentry.Object, after []registry.Entry) (registry.Refused, error) {
	value, asked := find(after, serviceentry.SubsetsKey)
	if !asked {
		if before == nil {
			return nil, nil
		}
		return nil, t.store.Delete(ctx, *before) //nolint:wrapcheck // Write names the group
	}
	if !serviceentry.AsksForSubsets(value) { // somebody edited it, and it is not to be written back yet
		return nil, nil
	}
	next, err := serviceentry.NewRule(service, registry.Entry{Group: service.Group(), Key: serviceentry.SubsetsKey, Value: value})
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // Write names the group
	case before != nil && next.Same(*before):
		return nil, nil
	case before != nil:
		next.Metadata.UID, next.Metadata.ResourceVersion = before.Metadata.UID, before.Metadata.ResourceVersion
	}
	if err = t.store.Put(ctx, next); errors.Is(err, registry.ErrRefused) {
		return registry.Refused{serviceentry.SubsetsKey: err}, nil
	}
	return nil, err //nolint:wrapcheck // Write names the group
}

// delete deletes what is stored, the rule first.
func (t *Target) delete(ctx context.Context, s stored) error {
	for _, o := range []*serviceentry.Object{s.rule, s.service} {
		if o == nil {
			continue
		}
		if err := t.store.Delete(ctx, *o); err != nil {
			return err //nolint:wrapcheck // Write names the group
		}
		if o == s.service {
			t.forget(o.Metadata.Name)
		}
	}
	return nil
}

// unlike refuses entries that an object would not be read back as: they would be
// written again for ever.
func (t *Target) unlike(o serviceentry.Object, entries []registry.Entry) registry.Refused {
	back := make(map[string]string, len(entries))
	for _, e := range o.Entries(t.o.VIPs) {
		back[e.Key] = e.Value
	}
	refused := make(registry.Refused)
	for _, e := range entries {
		if registry.IsPart(e.Key) {
			continue
		}
		if value, there := back[e.Key]; !there || value != e.Value {
			refused[e.Key] = fmt.Errorf("%w: a ServiceEntry does not keep it as it is", registry.ErrRefused)
		}
	}
	return refused
}

// maxEndpoints is how many endpoints istio's custom resource definition lets a
// ServiceEntry have.
const maxEndpoints = 4096

// surplus refuses the new endpoints for which an object has no room, if any. What is
// deleted makes none: it stays where something new is refused.
func surplus(held, after []registry.Entry, c registry.Change) registry.Refused {
	refused := make(registry.Refused)
	if endpoints(after) <= maxEndpoints {
		return refused
	}
	room := maxEndpoints - endpoints(held)
	for _, w := range c.Put {
		if _, there := find(held, w.New.Key); there || !registry.IsEndpoint(w.New.Key) {
			continue
		}
		if room--; room < 0 {
			refused[w.New.Key] = fmt.Errorf("%w: a ServiceEntry may have %d endpoints: divide the service", registry.ErrRefused, maxEndpoints)
		}
	}
	return refused
}

func endpoints(all []registry.Entry) (n int) {
	for _, e := range all {
		if registry.IsEndpoint(e.Key) {
			n++
		}
	}
	return n
}

// tooLarge refuses what makes an object larger than it may be: entries that take
// half of that alone or, where none does, all that are new or become larger.
func tooLarge(c registry.Change, size, limit int) (registry.Refused, error) {
	large, grown := make(registry.Refused), make(registry.Refused)
	for _, w := range c.Put {
		if n := len(w.New.Value); n > limit/2 { //nolint:mnd // half
			large[w.New.Key] = fmt.Errorf("%w: %d bytes are too many for one endpoint of a ServiceEntry", registry.ErrRefused, n)
		}
		if registry.IsEndpoint(w.New.Key) && (w.Old == nil || len(w.New.Value) > len(w.Old.Value)) {
			grown[w.New.Key] = fmt.Errorf("%w: the ServiceEntry would have %d bytes, and may have %d: divide the service", registry.ErrRefused, size, limit)
		}
	}
	switch {
	case len(large) > 0:
		return large, nil
	case len(grown) > 0:
		return grown, nil
	}
	return nil, fmt.Errorf("%w: the ServiceEntry would have %d bytes, and may have %d", registry.ErrRefused, size, limit)
}

// apply returns what a group holds after a change.
func apply(held []registry.Entry, c registry.Change) []registry.Entry {
	changed := make(map[string]bool, len(c.Put)+len(c.Delete))
	out := make([]registry.Entry, 0, len(held)+len(c.Put))
	for _, w := range c.Put {
		changed[w.New.Key] = true
		out = append(out, w.New)
	}
	for _, h := range c.Delete {
		changed[h.Key] = true
	}
	for _, e := range held {
		if e.Group = c.Group; !changed[e.Key] {
			out = append(out, e)
		}
	}
	return registry.Sorted(slices.Values(out))
}

// conditions reports whether all that a change replaces or deletes is still as it
// was held, or already as it should be.
func conditions(held []registry.Entry, c registry.Change) error {
	for _, w := range c.Put {
		value, there := find(held, w.New.Key)
		switch {
		case there && value == w.New.Value: // a repetition
		case w.Old == nil && there, w.Old != nil && (!there || value != w.Old.Value):
			return fmt.Errorf("entry %q: %w", w.New.Key, registry.ErrConflict)
		}
	}
	for _, h := range c.Delete {
		if value, there := find(held, h.Key); there && value != h.Value {
			return fmt.Errorf("entry %q: %w", h.Key, registry.ErrConflict)
		}
	}
	return nil
}

// find returns the value of an entry of a group.
func find(held []registry.Entry, key string) (value string, there bool) {
	i, there := slices.BinarySearchFunc(held, key, func(e registry.Entry, key string) int { return strings.Compare(e.Key, key) })
	if !there {
		return "", false
	}
	return held[i].Value, true
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
