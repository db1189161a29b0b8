package ads

import "time"

// on handles what a session tells. Sessions that were dropped tell nothing any
// more that counts.
func (e *engine) on(h sessionEvent) {
	if h.session != e.current && h.session != e.standby {
		return
	}
	switch {
	case h.err != nil:
		e.lost(h.session, e.options.explain(h.err))
	case h.opened:
		h.session.opened = true
		e.observe(Observation{Kind: StreamOpened})
	case h.response != nil:
		e.deliver(h.session, *h.response)
	}
}

// deliver handles one response.
func (e *engine) deliver(s *session, r response) {
	if !s.received {
		e.promote(s)
	}
	e.observe(Observation{Kind: ResponseReceived, Type: r.url, Bytes: r.size(), Resources: len(r.resources)})
	x := s.typeStream(r.url)
	if x == nil || !x.asked {
		e.options.Log.Debug("response of a type that was not asked for, ignored", "type", r.url)
		return
	}
	x.nonce = r.nonce
	l := x.state.interest
	if l.idle() {
		return // a rejection of what was unsubscribed from would crash istiod
	}
	x.responses++
	err := x.state.cached.apply(r, x.response(s.epoch, s.mode))
	if err == nil {
		l.version = r.version
	} else {
		e.options.Log.Warn("resources rejected, their last good values stay", "address", e.options.Address, "type", r.url, "err", err)
	}
	x.answers = append(x.answers, answer{nonce: r.nonce, version: l.version, err: err})
	e.board.setType(l.url, func(t *TypeState) {
		t.Responses++
		t.Err = err
		if err != nil {
			t.Nacks++
		}
	})
	e.publish(x)
}

// promote makes a session that delivers its first message the one that counts.
func (e *engine) promote(s *session) {
	if s == e.standby {
		e.drop(e.current)
		e.current, e.standby = s, nil
	}
	e.number(s)
	s.received = true
	e.last = s.link.dialer.at()
	if s.link.number > e.redial {
		e.first = nil
	}
	e.failures, e.fellBack, e.lastDown = 0, false, ""
	e.board.set(func(st *State) {
		if !st.Connected {
			st.Connected, st.Since = true, time.Now()
		}
		st.Address = s.link.dialer.at()
		st.Epoch, st.Mode, st.Attempts, st.Err = e.epoch, s.mode, 0, nil
		for url, t := range st.Types {
			t.Nonce = ""
			st.Types[url] = t
		}
	})
	e.options.Log.Info("stream delivers", "address", e.options.Address, "mode", s.mode.String(), "epoch", s.epoch)
}

// number gives a stream its number once something is known by it.
func (e *engine) number(s *session) {
	if s.epoch == 0 {
		e.epoch++
		s.epoch, e.connection = e.epoch, s.link.number
	}
}

// publish shows how a type stands.
func (e *engine) publish(x *typeStream) {
	l := x.state.interest
	e.board.setType(l.url, func(t *TypeState) {
		t.Version, t.Nonce, t.Resources, t.Unknown = l.version, x.nonce, l.held, l.unknown
	})
}
