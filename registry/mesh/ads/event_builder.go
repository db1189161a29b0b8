package ads

import (
	"cmp"
	"slices"
)

// eventBuilder collects the content of one event. It ignores names that are not subscribed to.
type eventBuilder[T any] struct {
	cached     *cachedTypeOf[T]
	event      Event[T]
	hasContent bool // the handler has to be called
}

func (t *cachedTypeOf[T]) newEvent(epoch int) *eventBuilder[T] {
	return &eventBuilder[T]{cached: t, event: Event[T]{Epoch: epoch, Connection: *t.connection}}
}

// include reports whether a name is subscribed to. If so, the handler will be called.
func (b *eventBuilder[T]) include(name string) bool {
	subscribed := b.cached.subscribed.has(name)
	b.hasContent = b.hasContent || subscribed
	return subscribed
}

func (b *eventBuilder[T]) changed(name string, r *cachedResource[T]) {
	if b.include(name) {
		b.event.Changed = append(b.event.Changed, Resource[T]{Name: name, Version: r.version, Value: r.value})
	}
}

func (b *eventBuilder[T]) confirmed(name string) {
	if b.include(name) {
		b.event.Confirmed = append(b.event.Confirmed, name)
	}
}

func (b *eventBuilder[T]) removed(name string) {
	if b.include(name) {
		b.event.Removed = append(b.event.Removed, name)
	}
}

func (b *eventBuilder[T]) unknown(name string, err error) {
	if b.include(name) {
		setErr(&b.event.Unknown, name, err)
	}
}

func (b *eventBuilder[T]) invalid(name string, err error) {
	if b.include(name) {
		setErr(&b.event.Invalid, name, err)
	}
}

// nameless adds an invalid resource without a readable name. It concerns every subscription,
// because its name may be any.
func (b *eventBuilder[T]) nameless(position string, err error) {
	if len(b.cached.subscribed.names) > 0 {
		b.hasContent = true
		setErr(&b.event.Invalid, position, err)
	}
}

func (b *eventBuilder[T]) complete() {
	if b.include(Wildcard) {
		b.event.Complete = true
	}
}

func setErr(m *map[string]error, name string, err error) {
	if *m == nil {
		*m = map[string]error{}
	}
	(*m)[name] = err
}

// deliver calls the handler, unless the event is empty.
func (b *eventBuilder[T]) deliver() {
	if !b.hasContent {
		return
	}
	e := &b.event
	slices.SortFunc(e.Changed, func(a, b Resource[T]) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(e.Confirmed)
	slices.Sort(e.Removed)
	b.cached.handle(*e)
}
