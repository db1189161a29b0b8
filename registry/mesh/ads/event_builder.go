package ads

import (
	"cmp"
	"slices"
)

// eventBuilder collects the event of one response, without names that are not
// subscribed to.
type eventBuilder[T any] struct {
	cached     *cachedTypeOf[T]
	event      Event[T]
	hasContent bool
}

func (t *cachedTypeOf[T]) newEvent(epoch int) *eventBuilder[T] {
	return &eventBuilder[T]{cached: t, event: Event[T]{Epoch: epoch, Connection: *t.connection}}
}

// concerns reports whether a name is subscribed to; then the event is delivered.
func (b *eventBuilder[T]) concerns(name string) bool {
	concerns := b.cached.subscribed.has(name)
	b.hasContent = b.hasContent || concerns
	return concerns
}

func (b *eventBuilder[T]) changed(name string, r *cachedResource[T]) {
	if b.concerns(name) {
		b.event.Changed = append(b.event.Changed, Resource[T]{Name: name, Version: r.version, Value: r.value})
	}
}

func (b *eventBuilder[T]) confirmed(name string) {
	if b.concerns(name) {
		b.event.Confirmed = append(b.event.Confirmed, name)
	}
}

func (b *eventBuilder[T]) removed(name string) {
	if b.concerns(name) {
		b.event.Removed = append(b.event.Removed, name)
	}
}

func (b *eventBuilder[T]) unknown(name string, err error) {
	if b.concerns(name) {
		setErr(&b.event.Unknown, name, err)
	}
}

func (b *eventBuilder[T]) invalid(name string, err error) {
	if b.concerns(name) {
		setErr(&b.event.Invalid, name, err)
	}
}

// nameless reports a resource without a readable name, which may have any name.
func (b *eventBuilder[T]) nameless(place string, err error) {
	if len(b.cached.subscribed.names) > 0 {
		b.hasContent = true
		setErr(&b.event.Invalid, place, err)
	}
}

func (b *eventBuilder[T]) complete() {
	if b.concerns(Wildcard) {
		b.event.Complete = true
	}
}

func setErr(m *map[string]error, name string, err error) {
	if *m == nil {
		*m = map[string]error{}
	}
	(*m)[name] = err
}

// deliver calls the handler, if there is anything to report.
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
