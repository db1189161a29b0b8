package ads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// successorTimeout is how long a second stream may take until its first response.
const successorTimeout = 2 * resourceTimeout

// connect opens a stream if there is none and the next attempt is due. It opens a second
// one if the connection has to be replaced.
func (l *clientLoop) connect(ctx context.Context) {
	now, k := time.Now(), &l.connector
	if l.successor != nil && !now.Before(l.successor.started.Add(successorTimeout)) {
		l.handleStreamFailure(l.successor, errors.New("no response on the second stream"))
	}
	switch {
	case l.current == nil && l.hasSubscriptions() && !now.Before(k.nextAttempt):
		s, err := k.dial()
		if err != nil {
			l.handleConnectFailure(err)
			return
		}
		l.current = s
		l.startStream(ctx, s)
	case l.requiresSuccessor() && !now.Before(k.nextSuccessorAttempt):
		k.nextSuccessorAttempt = now.Add(backoffBase)
		if s, err := k.dial(); err == nil { // an invalid address would have failed the first stream
			l.successor = s
			l.startStream(ctx, s)
		}
	}
}

// requiresSuccessor reports whether the connection of the current stream has to be replaced.
// A stream without a response is not replaced.
func (l *clientLoop) requiresSuccessor() bool {
	s := l.current
	return s != nil && s.received && s.nodeSent && l.successor == nil && s.number <= l.connector.replaceUpTo
}

// startStream starts the goroutines of a stream, with every resource type.
func (l *clientLoop) startStream(ctx context.Context, s *adsStream) {
	ctx, s.cancel = context.WithCancel(ctx)
	for _, t := range l.types {
		s.typeStreams = append(s.typeStreams, newTypeStream(s, t))
	}
	l.group.Go(func() { s.receiveAll(ctx, l.report) })
}

// makeCurrent makes a stream the current one at its first response.
func (l *clientLoop) makeCurrent(s *adsStream) {
	if s == l.successor {
		l.closeStream(l.current)
		l.current, l.successor = s, nil
	}
	l.setEpoch(s)
	s.received = true
	k := &l.connector
	k.lastAddress = s.dialer.address()
	if s.number > k.replaceUpTo {
		k.preferred = nil
	}
	k.failures, k.modeSwitched, k.reportedErrorKey = 0, false, ""
	l.state.update(func(st *State) {
		if !st.Connected {
			st.Connected, st.Since = true, time.Now()
		}
		st.Address = k.lastAddress
		st.Epoch, st.Mode, st.Attempts, st.Err = l.epoch, s.mode, 0, nil
	})
	for _, t := range l.types {
		if t.state.Nonce != "" {
			t.state.Nonce = ""
			l.state.setType(t)
		}
	}
	l.options.Log.Info("xds stream established",
		"address", l.options.Address, "mode", s.mode.String(), "epoch", s.epoch)
}

// setEpoch numbers a stream before it reports anything: at its first response or timeout.
func (l *clientLoop) setEpoch(s *adsStream) {
	if s.epoch == 0 {
		l.epoch++
		s.epoch, l.connection = l.epoch, s.number
	}
}

// handleStreamFailure closes a broken stream and schedules the next attempt. A successor of
// the current stream takes its place.
func (l *clientLoop) handleStreamFailure(s *adsStream, err error) {
	if s.open {
		l.observe(Observation{Kind: StreamClosed, Err: err})
	}
	if strings.Contains(err.Error(), "too_many_pings") {
		// The server is not an istiod: gRPC servers allow one ping in 5 minutes by default.
		l.connector.pingInterval = min(2*l.connector.pingInterval, maxPingInterval)
	}
	if s == l.successor {
		l.closeStream(s)
		l.connector.nextSuccessorAttempt = time.Now().Add(jitter(backoffCap))
		l.options.Log.Warn("second xds stream failed, keeping the first", "address", l.options.Address, "err", err)
		return
	}
	if s.received { // reported before the connection is closed, which is slow
		for _, t := range l.types {
			t.cached.reportDisconnect(err, streamEnded)
		}
	}
	l.closeStream(s)
	if l.successor != nil {
		l.current, l.successor = l.successor, nil
	}
	l.state.update(func(st *State) {
		st.disconnect()
		st.Err = err
	})
	switch {
	case l.fallBack(s, err):
	case s.received && !retriesSlowly(err):
		l.connector.nextAttempt = NextStream(s.started, time.Now())
		l.options.Log.Info("xds stream ended, reconnecting", "address", l.options.Address, "err", err)
	default:
		l.handleConnectFailure(err)
	}
}

// fallBack switches to the other variant of the protocol if the server does not implement
// the current one. It returns true if the other variant is to be tried at once.
func (l *clientLoop) fallBack(s *adsStream, err error) (atOnce bool) {
	if l.options.Mode != Auto || s.received || status.Code(err) != codes.Unimplemented {
		return false
	}
	k := &l.connector
	if k.mode == Delta {
		k.mode = StateOfTheWorld
	} else {
		k.mode = Delta
	}
	atOnce, k.modeSwitched = !k.modeSwitched, true
	l.state.update(func(st *State) { st.Mode = k.mode })
	l.options.Log.Info("server does not implement this xds variant, falling back",
		"address", l.options.Address, "mode", k.mode.String())
	return atOnce
}

// handleConnectFailure records an attempt that got no response, and schedules the next one.
func (l *clientLoop) handleConnectFailure(err error) {
	k := &l.connector
	k.failures++
	wait := Backoff(k.failures)
	if retriesSlowly(err) {
		wait = jitter(backoffCap)
	}
	k.nextAttempt = time.Now().Add(wait)
	l.state.update(func(st *State) { st.Attempts, st.Err = k.failures, err })
	l.observe(Observation{Kind: ConnectFailed, Err: err, Delay: wait})
	if errorKey(err) == k.reportedErrorKey {
		return
	}
	k.reportedErrorKey = errorKey(err)
	l.options.Log.Warn("no xds stream, keeping the last known resources", "address", l.options.Address, "err", err)
	for _, t := range l.types {
		t.cached.reportDisconnect(fmt.Errorf("not connected: %w", err), connectFailed)
	}
}

// closeStream closes a stream without a report.
func (l *clientLoop) closeStream(s *adsStream) {
	s.cancel()
	_ = s.conn.Close() // its only error says that it was closed before
	if s == l.current {
		l.current = nil
	} else {
		l.successor = nil
	}
}
