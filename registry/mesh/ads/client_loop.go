package ads

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// resourceTimeout is how long a live stream may leave a requested name unanswered. After
// that the name is reported as unknown.
const resourceTimeout = 15 * time.Second

// clientLoop is the state of Run's goroutine: the resource types, and up to two streams.
type clientLoop struct {
	// Immutable.
	options Options

	// Safe for concurrent use.
	state  *sharedState
	events chan streamEvent // from the goroutines of streams
	group  sync.WaitGroup   // the goroutines of streams

	// Owned by Run's goroutine.
	connector  connector
	types      []*subscribedType // in the order of the subscriptions
	epoch      int               // number of the newest stream that reported anything
	connection int               // number of that stream's connection
	current    *adsStream        // nil: none
	successor  *adsStream        // replaces current at its first response; nil: none
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

// addType adds a subscription to the loop and to the open streams.
func (l *clientLoop) addType(t *subscribedType) {
	if slices.ContainsFunc(l.types, func(o *subscribedType) bool { return o.url == t.url }) {
		panic("ads: " + t.url + ": subscribed to twice")
	}
	l.types = append(l.types, t)
	for _, s := range l.streams() {
		s.typeStreams = append(s.typeStreams, newTypeStream(s, t))
	}
}

// streams returns the open streams: none, one or two.
func (l *clientLoop) streams() []*adsStream {
	return slices.DeleteFunc([]*adsStream{l.current, l.successor}, func(s *adsStream) bool { return s == nil })
}

// run executes tasks, opens streams, sends requests and applies responses until ctx ends.
func (l *clientLoop) run(ctx context.Context, tasks *taskQueue) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer l.stop()
	for ctx.Err() == nil {
		tasks.drain(l)
		l.markDirtyNames()
		l.connect(ctx)
		l.expireUnanswered(time.Now())
		for _, s := range l.streams() {
			s.prepareRequest(l.options.Node)
		}
		l.forgetDropped()
		if next, ok := l.nextDeadline(); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		currentOut, currentRequest := l.current.offerRequest()
		successorOut, successorRequest := l.successor.offerRequest()
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

// report passes an event from a stream's goroutine to the loop. It returns false once the
// stream has been closed.
func (l *clientLoop) report(ctx context.Context, event streamEvent) bool {
	select {
	case l.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

// markDirtyNames marks the names that were added or dropped as dirty on each stream.
func (l *clientLoop) markDirtyNames() {
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

// forgetDropped forgets dropped names that no stream requests any more.
func (l *clientLoop) forgetDropped() {
	for _, t := range l.types {
		if len(t.droppedNames) == 0 {
			continue
		}
		t.forgetDropped(func(name string) bool {
			return slices.ContainsFunc(l.streams(), func(s *adsStream) bool {
				return has(s.typeStream(t.url).requestedNames, name)
			})
		})
		l.state.setType(t)
	}
}

// requestSent records that the next request was passed to the sender.
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

// handleEvent handles an event of a stream, unless the stream was closed.
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

// handleResponse applies a response to the cached resources, and queues its ACK or NACK.
func (l *clientLoop) handleResponse(s *adsStream, r discoveryResponse) {
	if !s.received {
		l.makeCurrent(s)
	}
	l.observe(Observation{Kind: ResponseReceived, Type: r.url, Bytes: r.size(), Resources: len(r.resources)})
	ts := s.typeStream(r.url)
	if ts == nil || !ts.requested {
		l.options.Log.Debug("ignoring response of a type that was not requested", "type", r.url)
		return
	}
	ts.nonce = r.nonce
	t := ts.resourceType
	if t.isEmpty() {
		return // istiod crashes when a type without names is rejected
	}
	ts.responses++
	err := t.cached.applyResponse(r, ts)
	t.state.Nonce, t.state.Err = r.nonce, err
	t.state.Responses++
	if err == nil {
		t.state.Version = r.version
	} else {
		t.state.Nacks++
		l.options.Log.Warn("resources rejected, keeping their last valid values",
			"address", l.options.Address, "type", r.url, "err", err)
	}
	ts.pendingAcks = append(ts.pendingAcks, ack{nonce: r.nonce, version: t.state.Version, err: err})
	l.state.setType(t)
}

// expireUnanswered reports the names that the current stream did not answer in time. A
// silent successor proves nothing while the current stream still receives responses.
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

// nextDeadline returns when the loop has to act without an event; false: never.
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

// stop closes every stream and waits for its goroutines.
func (l *clientLoop) stop() {
	for _, s := range l.streams() {
		l.closeStream(s)
	}
	l.group.Wait()
	l.state.update((*State).disconnect)
}
