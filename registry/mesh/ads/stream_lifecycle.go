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

func (l *clientLoop) startStream(ctx context.Context, s *adsStream) {
	ctx, s.cancel = context.WithCancel(ctx)
	for _, t := range l.types {
		s.typeStreams = append(s.typeStreams, newTypeStream(s, t))
	}
	l.group.Go(func() { s.receiveAll(ctx, l.report) })
}

// closeStream ends a session without a report.
func (l *clientLoop) closeStream(s *adsStream) {
	s.cancel()
	_ = s.conn.Close() // only says that it was closed before
	if s == l.current {
		l.current = nil
	} else {
		l.successor = nil
	}
}

// handleStreamFailure ends a session that broke. If it was the current one, the successor
// is current.
func (l *clientLoop) handleStreamFailure(s *adsStream, err error) {
	if s.open {
		l.observe(Observation{Kind: StreamClosed, Err: err})
	}
	if strings.Contains(err.Error(), "too_many_pings") {
		l.connector.pingInterval = min(2*l.connector.pingInterval, slowestPing) // it is no istiod: gRPC's default is 5 min
	}
	if s == l.successor {
		l.closeStream(s)
		l.connector.nextSuccessorAttempt = time.Now().Add(jitter(backoffCap))
		l.options.Log.Warn("second stream failed, the first one is kept", "address", l.options.Address, "err", err)
		return
	}
	if s.received { // before the slow close
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
		l.options.Log.Info("stream ended, opening another", "address", l.options.Address, "err", err)
	default:
		l.handleConnectFailure(err)
	}
}

// fallBack changes to the other variant if the server does not implement this one. It
// reports whether to try that at once.
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
	l.options.Log.Info("variant of xds not implemented by the server, trying the other", "address", l.options.Address, "mode", k.mode.String())
	return atOnce
}

// handleConnectFailure records an attempt without a response, and when to try again.
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
	l.options.Log.Warn("no stream, the last known state is kept", "address", l.options.Address, "err", err)
	for _, t := range l.types {
		t.cached.reportDisconnect(fmt.Errorf("not connected: %w", err), connectFailed)
	}
}

// connect opens a stream if there is none and one is due. It opens a second one if
// another connection is requested.
func (l *clientLoop) connect(ctx context.Context) {
	now, k := time.Now(), &l.connector
	if l.successor != nil && !now.Before(l.successor.started.Add(successorTimeout)) {
		l.handleStreamFailure(l.successor, errors.New("no answer on a second stream"))
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
		if s, err := k.dial(); err == nil { // otherwise the address is invalid, which the first stream would have reported
			l.successor = s
			l.startStream(ctx, s)
		}
	}
}

// requiresSuccessor reports whether the connection of the current stream is outdated.
// A stream is not replaced before it has delivered.
func (l *clientLoop) requiresSuccessor() bool {
	s := l.current
	return s != nil && s.received && s.nodeSent && l.successor == nil && s.number <= l.connector.replaceUpTo
}

// successorTimeout is how long a second stream has to deliver.
const successorTimeout = 2 * resourceTimeout

// makeCurrent makes a session that delivers its first message the current one.
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
	l.options.Log.Info("stream delivers", "address", l.options.Address, "mode", s.mode.String(), "epoch", s.epoch)
}

// setEpoch gives a stream its number once something is known by it.
func (l *clientLoop) setEpoch(s *adsStream) {
	if s.epoch == 0 {
		l.epoch++
		s.epoch, l.connection = l.epoch, s.number
	}
}
