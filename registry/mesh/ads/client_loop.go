package ads

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// clientLoop is what Run's goroutine owns. Nothing else touches it.
type clientLoop struct {
	options   Options
	state     *sharedState
	events    chan streamEvent
	group     sync.WaitGroup // goroutines of sessions
	connector connector

	types      []*subscribedType
	epoch      int        // number of the stream that delivers, or delivered last
	connection int        // number of its connection
	current    *adsStream // delivers
	successor  *adsStream // replaces current once it delivers
}

func newClientLoop(o Options, state *sharedState) *clientLoop {
	l := &clientLoop{options: o, state: state, events: make(chan streamEvent)}
	l.connector = connector{options: &l.options, mode: o.Mode, pingInterval: KeepaliveTime}
	if o.Mode == Auto {
		l.connector.mode = Delta
	}
	state.update(func(s *State) { s.Mode = l.connector.mode })
	return l
}

func (l *clientLoop) addType(t *subscribedType) {
	if slices.ContainsFunc(l.types, func(o *subscribedType) bool { return o.url == t.url }) {
		panic("ads: " + t.url + ": subscribed to twice")
	}
	l.types = append(l.types, t)
	for _, s := range l.streams() {
		s.typeStreams = append(s.typeStreams, newTypeStream(s, t))
	}
}

func (l *clientLoop) streams() []*adsStream {
	return slices.DeleteFunc([]*adsStream{l.current, l.successor}, func(s *adsStream) bool { return s == nil })
}

func (l *clientLoop) run(ctx context.Context, tasks *taskQueue) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer l.stop()
	for ctx.Err() == nil {
		tasks.drain(l)
		l.markChanged()
		l.connect(ctx)
		l.expireUnanswered(time.Now())
		for _, s := range l.streams() {
			s.prepare(l.options.Node)
		}
		l.forgetDropped()
		if next, ok := l.nextDeadline(); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		currentOut, currentRequest := l.current.offer()
		successorOut, successorRequest := l.successor.offer()
		select {
		case <-ctx.Done():
		case <-tasks.wake:
		case <-timer.C:
		case event := <-l.events:
			l.handleEvent(event)
		case currentOut <- currentRequest:
			l.requestSent(l.current)
		case successorOut <- successorRequest:
			l.requestSent(l.successor)
		}
	}
}

// report passes an event to the loop; false says that the session ended.
func (l *clientLoop) report(ctx context.Context, event streamEvent) bool {
	select {
	case l.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

// markChanged has the sessions look at names that were added or dropped.
func (l *clientLoop) markChanged() {
	for _, t := range l.types {
		if len(t.dirtyNames) == 0 {
			continue
		}
		for _, s := range l.streams() {
			maps.Copy(s.typeStream(t.url).dirtyNames, t.dirtyNames)
		}
		clear(t.dirtyNames)
	}
}

// forgetDropped forgets dropped names once no session asks for them.
func (l *clientLoop) forgetDropped() {
	for _, t := range l.types {
		if len(t.droppedNames) == 0 {
			continue
		}
		t.forgetDropped(func(name string) bool {
			return slices.ContainsFunc(l.streams(), func(s *adsStream) bool { return has(s.typeStream(t.url).requestedNames, name) })
		})
		l.state.setType(t)
	}
}

// requestSent records that the sender has the request that was ready.
func (l *clientLoop) requestSent(s *adsStream) {
	r, ts := s.nextRequest, s.nextRequestType
	s.nextRequest, s.nextRequestType = nil, nil
	ts.startTimeout(r.subscribe, time.Now().Add(resourceTimeout))
	l.observe(Observation{Kind: RequestSent, Type: r.url})
	switch {
	case r.err != nil:
		l.observe(Observation{Kind: Rejected, Type: r.url, Err: r.err})
	case r.nonce != "" && r.nonce == ts.nonce:
		l.observe(Observation{Kind: Acknowledged, Type: r.url})
	}
}

func (l *clientLoop) observe(o Observation) {
	o.Epoch = l.epoch
	l.options.Observe(o)
}

// handleEvent handles an event of a session, unless the session was dropped.
func (l *clientLoop) handleEvent(event streamEvent) {
	s := event.stream
	if s != l.current && s != l.successor {
		return
	}
	switch {
	case event.err != nil:
		l.handleStreamFailure(s, l.options.explain(event.err))
	case event.opened:
		s.open = true
		l.observe(Observation{Kind: StreamOpened})
	case event.response != nil:
		l.handleResponse(s, *event.response)
	}
}

func (l *clientLoop) handleResponse(s *adsStream, r discoveryResponse) {
	if !s.received {
		l.makeCurrent(s)
	}
	l.observe(Observation{Kind: ResponseReceived, Type: r.url, Bytes: r.size(), Resources: len(r.resources)})
	ts := s.typeStream(r.url)
	if ts == nil || !ts.requested {
		l.options.Log.Debug("response of a type that was not asked for, ignored", "type", r.url)
		return
	}
	ts.nonce = r.nonce
	t := ts.resourceType
	if t.isEmpty() {
		return // a rejection of a type without names would crash istiod
	}
	ts.responses++
	err := t.cached.applyResponse(r, ts)
	t.state.Nonce, t.state.Err = r.nonce, err
	t.state.Responses++
	if err == nil {
		t.state.Version = r.version
	} else {
		t.state.Nacks++
		l.options.Log.Warn("resources rejected, their last valid values are kept", "address", l.options.Address, "type", r.url, "err", err)
	}
	ts.pendingAcks = append(ts.pendingAcks, ack{nonce: r.nonce, version: t.state.Version, err: err})
	l.state.setType(t)
}

// expireUnanswered reports names that were not answered in time, on the current stream only:
// the silence of a successor proves nothing while another stream delivers.
func (l *clientLoop) expireUnanswered(now time.Time) {
	s := l.current
	if s == nil {
		return
	}
	for _, ts := range s.typeStreams {
		names := ts.removeExpiredNames(now)
		if len(names) == 0 {
			continue
		}
		l.setEpoch(s)
		ts.resourceType.cached.expireNames(names, ts)
		l.state.setType(ts.resourceType)
	}
}

// nextDeadline returns when the loop has to look again by itself.
func (l *clientLoop) nextDeadline() (time.Time, bool) {
	var times []time.Time
	if l.current == nil && l.hasSubscriptions() {
		times = append(times, l.connector.nextAttempt)
	}
	if l.requiresSuccessor() {
		times = append(times, l.connector.nextSuccessorAttempt)
	}
	if l.successor != nil {
		times = append(times, l.successor.started.Add(successorTimeout))
	}
	if l.current != nil {
		for _, ts := range l.current.typeStreams {
			if len(ts.answerTimeouts) > 0 {
				times = append(times, ts.answerTimeouts[0].at)
			}
		}
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(times, time.Time.Compare), true
}

func (l *clientLoop) hasSubscriptions() bool {
	return slices.ContainsFunc(l.types, func(t *subscribedType) bool { return len(t.names) > 0 })
}

func (l *clientLoop) stop() {
	for _, s := range l.streams() {
		l.closeStream(s)
	}
	l.group.Wait()
	l.state.update((*State).disconnect)
}

// resourceTimeout is of a name without an answer on a live stream, which is unknown then.
const resourceTimeout = 15 * time.Second
