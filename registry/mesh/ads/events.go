package ads

import (
	"cmp"
	"maps"
	"slices"
)

// eventBuilder gathers what one message means for each subscription.
type eventBuilder[T any] struct {
	cached *cachedTypeOf[T]
	epoch  int
	resync bool
	events map[*Subscription[T]]*Event[T]
}

func (t *cachedTypeOf[T]) newEvents(epoch int) *eventBuilder[T] {
	return &eventBuilder[T]{cached: t, epoch: epoch, events: map[*Subscription[T]]*Event[T]{}}
}

// event returns the event of one subscription.
func (n *eventBuilder[T]) event(s *Subscription[T]) *Event[T] {
	e := n.events[s]
	if e == nil {
		e = &Event[T]{Epoch: n.epoch, Connection: *n.cached.link}
		n.events[s] = e
	}
	return e
}

// each calls do with the event of every subscription that name concerns.
func (n *eventBuilder[T]) each(name string, do func(e *Event[T])) {
	for s := range n.cached.all {
		do(n.event(s))
	}
	for _, s := range n.cached.named[name] {
		if _, both := n.cached.all[s]; !both {
			do(n.event(s))
		}
	}
}

func (n *eventBuilder[T]) changed(name string, r *record[T]) {
	n.each(name, func(e *Event[T]) { e.Changed = append(e.Changed, resource(name, r)) })
}

func resource[T any](name string, r *record[T]) Resource[T] {
	return Resource[T]{Name: name, Version: r.version, Value: r.value}
}

func (n *eventBuilder[T]) confirmed(name string) {
	n.each(name, func(e *Event[T]) { e.Confirmed = append(e.Confirmed, name) })
}

func (n *eventBuilder[T]) removed(name string) {
	n.each(name, func(e *Event[T]) {
		e.Removed = append(e.Removed, name)
		e.Resync = n.resync
	})
}

func (n *eventBuilder[T]) unknown(name string, err error) {
	n.each(name, func(e *Event[T]) { put(&e.Unknown, name, err) })
}

func (n *eventBuilder[T]) invalid(name string, err error) {
	n.each(name, func(e *Event[T]) { put(&e.Invalid, name, err) })
}

// nameless reports a resource whose name could not be read to everybody, since
// it may be anybody's.
func (n *eventBuilder[T]) nameless(place string, err error) {
	for _, s := range n.cached.subscribers() {
		put(&n.event(s).Invalid, place, err)
	}
}

func (n *eventBuilder[T]) complete() {
	for s := range n.cached.all {
		n.event(s).Complete = true
	}
}

func put(m *map[string]error, name string, err error) {
	if *m == nil {
		*m = map[string]error{}
	}
	(*m)[name] = err
}

// deliver calls the handlers.
func (n *eventBuilder[T]) deliver() {
	for _, s := range slices.SortedFunc(maps.Keys(n.events), byAge) {
		e := n.events[s]
		slices.SortFunc(e.Changed, func(a, b Resource[T]) int { return cmp.Compare(a.Name, b.Name) })
		slices.Sort(e.Confirmed)
		slices.Sort(e.Removed)
		s.deliver(*e)
	}
}
