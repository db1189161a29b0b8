package istiod

import (
	"maps"
	"slices"
)

// decide applies istiod's rules to a request and returns the answers.
func (c *connection) decide(r Request) []Answer {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	names, respond, verdict := judge(c, r)
	r.Verdict = verdict
	c.record(r)
	if !respond {
		return nil
	}
	var answers []Answer
	if a, ok := c.answer(r.Type, names); ok {
		answers = append(answers, a)
	}
	if w := c.watches[EndpointType]; r.Type == ClusterType && w != nil {
		if !c.delta {
			w.always = true
		} else if a, ok := c.answer(EndpointType, w.names); ok {
			answers = append(answers, a) // endpoints always follow clusters
		}
	}
	return answers
}

func judge(c *connection, r Request) (names map[string]struct{}, respond bool, v Verdict) {
	w := c.watches[r.Type]
	if r.Error != nil {
		if w == nil {
			return nil, false, Crash
		}
		return nil, false, Rejection
	}
	if c.delta {
		return judgeDelta(c, w, r)
	}
	return judgeWorld(c, w, r)
}

// judgeWorld is istiod's ShouldRespond. It returns the names of the answer; nil: all watched ones.
func judgeWorld(c *connection, w *watch, r Request) (names map[string]struct{}, respond bool, v Verdict) {
	if !wildcard(r.Type) && len(r.Subscribe) == 0 {
		delete(c.watches, r.Type)
		return nil, false, Unsubscription
	}
	now := set(r.Subscribe)
	if r.Nonce == "" || w == nil {
		c.watches[r.Type] = &watch{names: now}
		return nil, true, Initial
	}
	if r.Nonce != w.nonce {
		return nil, false, Stale
	}
	before, always := w.names, w.always
	w.names, w.always = now, false
	added, removed := minus(now, before), minus(before, now)
	switch {
	case always:
		return nil, true, Forced
	case len(added)+len(removed) == 0:
		return nil, false, Acknowledgement
	case !wildcard(r.Type) && len(added) == 0:
		return nil, false, Change
	default:
		return added, true, Change
	}
}

// judgeDelta is istiod's shouldRespondDelta.
func judgeDelta(c *connection, w *watch, r Request) (names map[string]struct{}, respond bool, v Verdict) {
	if w == nil {
		w = &watch{names: map[string]struct{}{}}
		subscribe(w, r)
		c.watches[r.Type] = w
		return nil, true, Initial
	}
	if r.Nonce != "" && r.Nonce != w.nonce {
		return nil, false, Stale
	}
	always := w.always
	w.always = false
	if !subscribe(w, r) {
		if r.Nonce == "" && !always {
			return nil, false, Mismatch
		}
		return nil, always, Acknowledgement
	}
	v = Change
	if r.Nonce != "" {
		v = Mismatch
	}
	added := set(r.Subscribe)
	answer := len(added) > 0
	delete(added, "*")
	return added, answer, v
}

// subscribe applies the names of a delta request, and returns whether that changed anything.
func subscribe(w *watch, r Request) bool {
	changed := false
	for _, name := range slices.Concat(r.Subscribe, slices.Collect(maps.Keys(r.Versions))) {
		if _, ok := w.names[name]; !ok {
			w.names[name] = struct{}{}
			changed = true
		}
	}
	for _, name := range r.Unsubscribe {
		if _, ok := w.names[name]; ok {
			delete(w.names, name)
			changed = true
		}
	}
	delete(w.names, "*")
	return changed
}

func set(names []string) map[string]struct{} {
	m := make(map[string]struct{}, len(names))
	for _, name := range names {
		m[name] = struct{}{}
	}
	return m
}

func minus(a, b map[string]struct{}) map[string]struct{} {
	m := map[string]struct{}{}
	for name := range a {
		if _, ok := b[name]; !ok {
			m[name] = struct{}{}
		}
	}
	return m
}
