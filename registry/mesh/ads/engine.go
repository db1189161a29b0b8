package ads

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// engine is what Run's goroutine owns: nothing else touches it.
type engine struct {
	options Options
	board   *board
	events  chan sessionEvent
	group   sync.WaitGroup // goroutines of sessions

	typeStates    []*typeState
	subscriptions int // made so far
	epoch         int // of the stream that delivers, or did last
	connection    int // the number of its link
	mode          Mode
	fellBack      bool // the other mode was tried since a message was received

	node      *corev3.Node
	links     int       // made so far
	redial    int       // links up to this number are to be replaced
	first     []string  // addresses to be tried first by the link that replaces them
	last      string    // the address of the link that delivered last
	secondDue time.Time // not before this is a second stream opened
	current   *session  // delivers
	standby   *session  // replaces it, takes over once it delivers
	due       time.Time // not before this is another stream opened
	failures  int       // in a row
	lastDown  string    // error that subscribers know of
	ping      time.Duration
}

func newEngine(o Options, b *board) *engine {
	mode := o.Mode
	if mode == Auto {
		mode = Delta
	}
	b.set(func(s *State) { s.Mode = mode })
	return &engine{options: o, board: b, events: make(chan sessionEvent), node: o.Node, mode: mode, ping: KeepaliveTime}
}

// typeState returns the type state of a type, made by make if there is none.
func (e *engine) typeState(url string, create func(*interest) cachedType) *typeState {
	for _, b := range e.typeStates {
		if b.interest.url == url {
			return b
		}
	}
	l := newInterest(url)
	b := &typeState{interest: l, cached: create(l)}
	e.typeStates = append(e.typeStates, b)
	for _, s := range e.sessions() {
		s.typeStreams = append(s.typeStreams, newTypeStream(b))
	}
	return b
}

func (e *engine) sessions() []*session {
	return slices.DeleteFunc([]*session{e.current, e.standby}, func(s *session) bool { return s == nil })
}

// loop runs until ctx ends.
func (e *engine) loop(ctx context.Context, in *inbox) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer e.stop()
	for ctx.Err() == nil {
		in.drain(e)
		e.notifySessions()
		e.connect(ctx)
		e.expire(time.Now())
		for _, s := range e.sessions() {
			s.prepare(e.node)
		}
		e.releaseUnused()
		if next, ok := e.next(); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		currentOut, currentMessage := e.current.offer()
		standbyOut, standbyMessage := e.standby.offer()
		select {
		case <-ctx.Done():
		case <-in.wake:
		case <-timer.C:
		case h := <-e.events:
			e.on(h)
		case currentOut <- currentMessage:
			e.sent(e.current)
		case standbyOut <- standbyMessage:
			e.sent(e.standby)
		}
	}
}

// send hands a happening to the loop; false says that nobody waits for it.
func (e *engine) send(ctx context.Context, h sessionEvent) bool {
	select {
	case e.events <- h:
		return true
	case <-ctx.Done():
		return false
	}
}

// notifySessions tells the sessions which names to look at again.
func (e *engine) notifySessions() {
	for _, b := range e.typeStates {
		if len(b.interest.changed) == 0 {
			continue
		}
		for _, s := range e.sessions() {
			x := s.typeStream(b.interest.url)
			for name := range b.interest.changed {
				x.dirty[name] = struct{}{}
			}
		}
		clear(b.interest.changed)
	}
}

// releaseUnused forgets what nobody wants and no session asks for.
func (e *engine) releaseUnused() {
	for _, b := range e.typeStates {
		if len(b.interest.leaving) == 0 {
			continue
		}
		var asked []map[string]struct{}
		for _, s := range e.sessions() {
			asked = append(asked, s.typeStream(b.interest.url).subscribed)
		}
		b.interest.releaseUnused(asked)
		e.board.setType(b.interest.url, func(t *TypeState) { t.Resources, t.Unknown = b.interest.held, b.interest.unknown })
	}
}

// sent notes that the sender took the message that was ready.
func (e *engine) sent(s *session) {
	r, x := s.ready, s.of
	s.ready, s.of = nil, nil
	x.wait(r.subscribe, time.Now().Add(e.options.Silence))
	e.observe(Observation{Kind: RequestSent, Type: r.url})
	switch {
	case r.err != nil:
		e.observe(Observation{Kind: Rejected, Type: r.url, Err: r.err})
	case r.nonce != "" && r.nonce == x.nonce:
		e.observe(Observation{Kind: Acknowledged, Type: r.url})
	}
}

// observe reports what happens on the wire.
func (e *engine) observe(o Observation) {
	o.Epoch = e.epoch
	e.options.Observe(o)
}

// expire reports names that nothing was answered to. A stream that has not
// delivered yet proves nothing by its silence while another delivers.
func (e *engine) expire(now time.Time) {
	s := e.current
	if s == nil {
		return
	}
	for _, x := range s.typeStreams {
		names := x.timedOut(now)
		if len(names) == 0 {
			continue
		}
		e.number(s)
		x.state.cached.timeOut(names, x.response(s.epoch, s.mode))
		e.publish(x)
	}
}

// next returns when the loop has to look again by itself.
func (e *engine) next() (time.Time, bool) {
	var times []time.Time
	if e.current == nil && e.asks() {
		times = append(times, e.due)
	}
	if e.outdated() {
		times = append(times, e.secondDue)
	}
	if e.standby != nil {
		times = append(times, e.standby.started.Add(e.patience()))
	}
	if e.current != nil {
		for _, x := range e.current.typeStreams {
			if len(x.timeouts) > 0 {
				times = append(times, x.timeouts[0].at)
			}
		}
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(times, time.Time.Compare), true
}

// asks says whether anything is wanted.
func (e *engine) asks() bool {
	return slices.ContainsFunc(e.typeStates, func(b *typeState) bool { return len(b.interest.want) > 0 })
}

// stop ends all sessions and waits for their goroutines.
func (e *engine) stop() {
	for _, s := range e.sessions() {
		e.drop(s)
	}
	e.group.Wait()
	e.board.set(func(s *State) {
		if s.Connected {
			s.Connected, s.Since = false, time.Now()
		}
	})
}

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

// board is what State reads while Run writes.
type board struct {
	mu    sync.Mutex // guards state
	state State
}

func (b *board) set(change func(s *State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
}

func (b *board) setType(url string, change func(t *TypeState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Types == nil {
		b.state.Types = map[string]TypeState{}
	}
	t := b.state.Types[url]
	change(&t)
	b.state.Types[url] = t
}

func (b *board) get() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Types = maps.Clone(s.Types)
	return s
}
