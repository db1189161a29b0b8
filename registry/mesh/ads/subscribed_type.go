package ads

// subscribedType is one resource type with the names that are subscribed to, over all
// streams. It is owned by Run's goroutine.
type subscribedType struct {
	url    string
	cached cachedType
	state  TypeState

	names      map[string]struct{} // subscribed to
	dirtyNames map[string]struct{} // added or dropped, and not yet passed to the streams

	// droppedNames are no longer subscribed to, but some stream still requests them. Their
	// resources are kept current until then: see forgetDropped.
	droppedNames map[string]struct{}
	onForget     func(name string)
}

func newSubscribedType(url string) *subscribedType {
	return &subscribedType{
		url: url, names: map[string]struct{}{}, dirtyNames: map[string]struct{}{}, droppedNames: map[string]struct{}{},
	}
}

// has reports whether a name is subscribed to, by itself or by the wildcard.
func (t *subscribedType) has(name string) bool { return has(t.names, name) || has(t.names, Wildcard) }

// covers reports whether a name is subscribed to, or was dropped and is still requested.
func (t *subscribedType) covers(name string) bool {
	return t.has(name) || has(t.droppedNames, name) || has(t.droppedNames, Wildcard)
}

func (t *subscribedType) isEmpty() bool { return len(t.names) == 0 && len(t.droppedNames) == 0 }

func has(set map[string]struct{}, name string) bool {
	_, ok := set[name]
	return ok
}

// forgetDropped forgets dropped names that no stream requests any more. They must not be
// forgotten earlier: if a name is dropped and added again between two requests, the server
// notices neither and does not send the resource again.
func (t *subscribedType) forgetDropped(isRequested func(name string) bool) {
	for name := range t.droppedNames {
		switch {
		case has(t.names, name):
			delete(t.droppedNames, name)
		case isRequested(name), !has(t.names, Wildcard) && isRequested(Wildcard):
		default:
			delete(t.droppedNames, name)
			t.onForget(name)
		}
	}
}

// add subscribes to a name; false: it was subscribed to already.
func (t *subscribedType) add(name string) bool {
	if has(t.names, name) {
		return false
	}
	t.names[name] = struct{}{}
	t.dirtyNames[name] = struct{}{}
	return true
}

// drop unsubscribes from a name; false: it was not subscribed to.
func (t *subscribedType) drop(name string) bool {
	if !has(t.names, name) {
		return false
	}
	delete(t.names, name)
	t.dirtyNames[name] = struct{}{}
	t.droppedNames[name] = struct{}{}
	return true
}
