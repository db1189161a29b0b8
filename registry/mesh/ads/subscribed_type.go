package ads

// subscribedType is the names of one type that are subscribed to. Only Run's goroutine
// touches it.
type subscribedType struct {
	url        string
	cached     cachedType
	names      map[string]struct{}
	dirtyNames map[string]struct{} // names that sessions have to look at
	// droppedNames are names that were removed and that the server may still serve. What is
	// known of them is kept current until no session asks for them.
	droppedNames map[string]struct{}
	onForget     func(name string)
	state        TypeState
}

func newSubscribedType(url string) *subscribedType {
	return &subscribedType{url: url, names: map[string]struct{}{}, dirtyNames: map[string]struct{}{}, droppedNames: map[string]struct{}{}}
}

// has reports whether a name is subscribed to, by itself or by the wildcard.
func (t *subscribedType) has(name string) bool { return has(t.names, name) || has(t.names, Wildcard) }

// covers reports whether a name is subscribed to, or was until lately.
func (t *subscribedType) covers(name string) bool {
	return t.has(name) || has(t.droppedNames, name) || has(t.droppedNames, Wildcard)
}

func (t *subscribedType) isEmpty() bool { return len(t.names) == 0 && len(t.droppedNames) == 0 }

func has(set map[string]struct{}, name string) bool {
	_, ok := set[name]
	return ok
}

// forgetDropped forgets dropped names that no session asks for any more. Sooner
// would be wrong: the server does not notice a name that is dropped and added again
// at once, and would not send it again.
func (t *subscribedType) forgetDropped(isSubscribed func(name string) bool) {
	for name := range t.droppedNames {
		switch {
		case has(t.names, name):
			delete(t.droppedNames, name)
		case isSubscribed(name), !has(t.names, Wildcard) && isSubscribed(Wildcard):
		default:
			delete(t.droppedNames, name)
			t.onForget(name)
		}
	}
}

func (t *subscribedType) add(name string) bool {
	if has(t.names, name) {
		return false
	}
	t.names[name] = struct{}{}
	t.dirtyNames[name] = struct{}{}
	return true
}

func (t *subscribedType) drop(name string) bool {
	if !has(t.names, name) {
		return false
	}
	delete(t.names, name)
	t.dirtyNames[name] = struct{}{}
	t.droppedNames[name] = struct{}{}
	return true
}
