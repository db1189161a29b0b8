package ads

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// engine is what Run's goroutine owns. Nothing else touches it.
type engine struct {
	options   Options
	state     *sharedState
	events    chan sessionEvent
	group     sync.WaitGroup // goroutines of sessions
	connector connector

	types      []*interest
	epoch      int      // number of the stream that delivers, or delivered last
	connection int      // number of its connection
	current    *session // delivers
	successor  *session // replaces current once it delivers
}

func newEngine(o Options, state *sharedState) *engine {
	e := &engine{options: o, state: state, events: make(chan sessionEvent)}
	e.connector = connector{options: &e.options, mode: o.Mode, ping: KeepaliveTime}
	if o.Mode == Auto {
		e.connector.mode = Delta
	}
	state.update(func(s *State) { s.Mode = e.connector.mode })
	return e
}

func (e *engine) addType(i *interest) {
	if slices.ContainsFunc(e.types, func(o *interest) bool { return o.url == i.url }) {
		panic("ads: " + i.url + ": subscribed to twice")
	}
	e.types = append(e.types, i)
	for _, s := range e.sessions() {
		s.typeStreams = append(s.typeStreams, newTypeStream(s, i))
	}
}

func (e *engine) sessions() []*session {
	return slices.DeleteFunc([]*session{e.current, e.successor}, func(s *session) bool { return s == nil })
}

func (e *engine) loop(ctx context.Context, tasks *taskQueue) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer e.stop()
	for ctx.Err() == nil {
		tasks.drain(e)
		e.markChanged()
		e.connect(ctx)
		e.expire(time.Now())
		for _, s := range e.sessions() {
			s.prepare(e.options.Node)
		}
		e.forgetDropped()
		if next, ok := e.next(); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		currentOut, currentRequest := e.current.offer()
		successorOut, successorRequest := e.successor.offer()
		select {
		case <-ctx.Done():
		case <-tasks.wake:
		case <-timer.C:
		case event := <-e.events:
			e.handle(event)
		case currentOut <- currentRequest:
			e.sent(e.current)
		case successorOut <- successorRequest:
			e.sent(e.successor)
		}
	}
}

// send passes an event to the loop; false says that the session ended.
func (e *engine) send(ctx context.Context, event sessionEvent) bool {
	select {
	case e.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

// markChanged has the sessions look at names that were added or dropped.
func (e *engine) markChanged() {
	for _, i := range e.types {
		if len(i.changed) == 0 {
			continue
		}
		for _, s := range e.sessions() {
			maps.Copy(s.typeStream(i.url).dirty, i.changed)
		}
		clear(i.changed)
	}
}

// forgetDropped forgets dropped names once no session asks for them.
func (e *engine) forgetDropped() {
	for _, i := range e.types {
		if len(i.dropped) == 0 {
			continue
		}
		i.forgetDropped(func(name string) bool {
			return slices.ContainsFunc(e.sessions(), func(s *session) bool { return has(s.typeStream(i.url).subscribed, name) })
		})
		e.state.setType(i)
	}
}

// sent records that the sender has the request that was ready.
func (e *engine) sent(s *session) {
	r, x := s.ready, s.readyType
	s.ready, s.readyType = nil, nil
	x.startTimeout(r.subscribe, time.Now().Add(resourceTimeout))
	e.observe(Observation{Kind: RequestSent, Type: r.url})
	switch {
	case r.err != nil:
		e.observe(Observation{Kind: Rejected, Type: r.url, Err: r.err})
	case r.nonce != "" && r.nonce == x.nonce:
		e.observe(Observation{Kind: Acknowledged, Type: r.url})
	}
}

func (e *engine) observe(o Observation) {
	o.Epoch = e.epoch
	e.options.Observe(o)
}

// handle handles an event of a session, unless the session was dropped.
func (e *engine) handle(event sessionEvent) {
	s := event.session
	if s != e.current && s != e.successor {
		return
	}
	switch {
	case event.err != nil:
		e.disconnect(s, e.options.explain(event.err))
	case event.opened:
		s.opened = true
		e.observe(Observation{Kind: StreamOpened})
	case event.response != nil:
		e.deliver(s, *event.response)
	}
}

func (e *engine) deliver(s *session, r response) {
	if !s.received {
		e.promote(s)
	}
	e.observe(Observation{Kind: ResponseReceived, Type: r.url, Bytes: r.size(), Resources: len(r.resources)})
	x := s.typeStream(r.url)
	if x == nil || !x.requested {
		e.options.Log.Debug("response of a type that was not asked for, ignored", "type", r.url)
		return
	}
	x.nonce = r.nonce
	i := x.interest
	if i.isEmpty() {
		return // a rejection of a type without names would crash istiod
	}
	x.responses++
	err := i.cached.apply(r, x)
	i.state.Nonce, i.state.Err = r.nonce, err
	i.state.Responses++
	if err == nil {
		i.state.Version = r.version
	} else {
		i.state.Nacks++
		e.options.Log.Warn("resources rejected, their last valid values are kept", "address", e.options.Address, "type", r.url, "err", err)
	}
	x.acks = append(x.acks, ack{nonce: r.nonce, version: i.state.Version, err: err})
	e.state.setType(i)
}

// promote makes a session that delivers its first message the current one.
func (e *engine) promote(s *session) {
	if s == e.successor {
		e.drop(e.current)
		e.current, e.successor = s, nil
	}
	e.setEpoch(s)
	s.received = true
	k := &e.connector
	k.last = s.dialer.address()
	if s.number > k.outdated {
		k.first = nil
	}
	k.failures, k.modeSwitched, k.reported = 0, false, ""
	e.state.update(func(st *State) {
		if !st.Connected {
			st.Connected, st.Since = true, time.Now()
		}
		st.Address = k.last
		st.Epoch, st.Mode, st.Attempts, st.Err = e.epoch, s.mode, 0, nil
	})
	for _, i := range e.types {
		if i.state.Nonce != "" {
			i.state.Nonce = ""
			e.state.setType(i)
		}
	}
	e.options.Log.Info("stream delivers", "address", e.options.Address, "mode", s.mode.String(), "epoch", s.epoch)
}

// setEpoch gives a stream its number once something is known by it.
func (e *engine) setEpoch(s *session) {
	if s.epoch == 0 {
		e.epoch++
		s.epoch, e.connection = e.epoch, s.number
	}
}

// expire reports names that were not answered in time, on the current stream only:
// the silence of a successor proves nothing while another stream delivers.
func (e *engine) expire(now time.Time) {
	s := e.current
	if s == nil {
		return
	}
	for _, x := range s.typeStreams {
		names := x.expired(now)
		if len(names) == 0 {
			continue
		}
		e.setEpoch(s)
		x.interest.cached.expire(names, x)
		e.state.setType(x.interest)
	}
}

// next returns when the loop has to look again by itself.
func (e *engine) next() (time.Time, bool) {
	var times []time.Time
	if e.current == nil && e.hasSubscriptions() {
		times = append(times, e.connector.due)
	}
	if e.requiresSuccessor() {
		times = append(times, e.connector.successorDue)
	}
	if e.successor != nil {
		times = append(times, e.successor.started.Add(successorTimeout))
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

func (e *engine) hasSubscriptions() bool {
	return slices.ContainsFunc(e.types, func(i *interest) bool { return len(i.names) > 0 })
}

func (e *engine) stop() {
	for _, s := range e.sessions() {
		e.drop(s)
	}
	e.group.Wait()
	e.state.update((*State).disconnect)
}

// connect opens a stream if there is none and one is due. It opens a second one if
// another connection is requested.
func (e *engine) connect(ctx context.Context) {
	now, k := time.Now(), &e.connector
	if e.successor != nil && !now.Before(e.successor.started.Add(successorTimeout)) {
		e.disconnect(e.successor, errors.New("no answer on a second stream"))
	}
	switch {
	case e.current == nil && e.hasSubscriptions() && !now.Before(k.due):
		s, err := k.dial()
		if err != nil {
			e.fail(err)
			return
		}
		e.current = s
		e.start(ctx, s)
	case e.requiresSuccessor() && !now.Before(k.successorDue):
		k.successorDue = now.Add(backoffBase)
		if s, err := k.dial(); err == nil { // otherwise the address is invalid, which the first stream would have reported
			e.successor = s
			e.start(ctx, s)
		}
	}
}

// requiresSuccessor reports whether the connection of the current stream is outdated.
// A stream is not replaced before it has delivered.
func (e *engine) requiresSuccessor() bool {
	s := e.current
	return s != nil && s.received && s.nodeSent && e.successor == nil && s.number <= e.connector.outdated
}

// successorTimeout is how long a second stream has to deliver.
const successorTimeout = 2 * resourceTimeout
