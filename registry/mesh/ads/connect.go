package ads

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// slowestPing is how far pings are spaced for servers that will not have them.
const slowestPing = 10 * time.Minute

// connect opens a stream where there is none and one is due, and a second one
// where another node has to be announced or another connection is wanted.
func (e *engine) connect(ctx context.Context) {
	now := time.Now()
	if e.standby != nil && !now.Before(e.standby.started.Add(e.patience())) {
		e.lost(e.standby, errors.New("no answer on a second stream"))
	}
	switch {
	case e.current == nil && e.asks() && !now.Before(e.due):
		l, err := e.dial()
		if err != nil {
			e.failed(err)
			return
		}
		e.current = e.start(ctx, l)
	case e.outdated() && !now.Before(e.secondDue):
		e.secondDue = now.Add(e.options.Backoff.Base)
		l, err := e.current.link, error(nil)
		if e.aged() {
			l, err = e.dial()
		}
		if err == nil { // else the address is wrong, which a first stream would have told
			e.standby = e.start(ctx, l)
		}
	}
}

// outdated says whether the current stream has to be replaced: the server knows
// us as another node than we are, or its connection is older than is wanted. A
// stream that has not delivered yet is waited for.
func (e *engine) outdated() bool {
	return e.current != nil && e.current.received && e.current.greeted && e.standby == nil &&
		(e.current.node != e.node || e.aged())
}

// aged says whether the connection of the current stream was made before a new
// one was asked for.
func (e *engine) aged() bool { return e.current.link.number <= e.redial }

// patience is how long a second stream may take to deliver.
func (e *engine) patience() time.Duration { return 2 * e.options.Silence }

func (e *engine) dial() (*connection, error) {
	d := &dialer{options: &e.options, first: e.first, avoid: e.last}
	conn, err := e.options.dial(e.ping, d)
	if err != nil {
		return nil, err
	}
	e.links++
	return &connection{conn: conn, dialer: d, number: e.links}, nil
}

// start opens a stream over a link.
func (e *engine) start(ctx context.Context, l *connection) *session {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{link: l.acquire(), mode: e.mode, out: make(chan request), cancel: cancel, started: time.Now()}
	for _, b := range e.typeStates {
		s.typeStreams = append(s.typeStreams, newTypeStream(b))
	}
	e.group.Go(func() { s.receiveAll(ctx, e.send) })
	return s
}

// drop ends a session silently to anybody.
func (e *engine) drop(s *session) {
	s.cancel()
	s.link.release()
	if s == e.current {
		e.current = nil
	} else {
		e.standby = nil
	}
}

// lost ends a session that broke. A second stream that breaks leaves the first
// in place; a first one that breaks leaves its place to the second.
func (e *engine) lost(s *session, err error) {
	if s.opened {
		e.observe(Observation{Kind: StreamClosed, Err: err})
	}
	if strings.Contains(err.Error(), "too_many_pings") {
		e.ping = min(2*e.ping, slowestPing) // it is no istiod: gRPC's default is 5 min
	}
	if s == e.standby {
		e.drop(s)
		e.secondDue = time.Now().Add(e.options.Backoff.slow())
		e.options.Log.Warn("no second stream, the old one continues", "address", e.options.Address, "err", err)
		return
	}
	if s.received { // closing may take its time
		for _, b := range e.typeStates {
			b.cached.lost(err, streamEnded)
		}
	}
	e.drop(s)
	if e.standby != nil {
		e.current, e.standby = e.standby, nil
	}
	e.board.set(func(st *State) {
		if st.Connected {
			st.Connected, st.Since = false, time.Now()
		}
		st.Err = err
	})
	if e.fallBack(s, err) {
		return
	}
	if s.received && !slow(err) {
		e.due = e.options.Backoff.Again(s.started, time.Now())
		e.options.Log.Info("stream ended, opening another", "address", e.options.Address, "err", err)
		return
	}
	e.failed(err)
}

// fallBack changes to the other variant, at once the first time, where the
// server does not implement this one.
func (e *engine) fallBack(s *session, err error) bool {
	if e.options.Mode != Auto || s.received || status.Code(err) != codes.Unimplemented {
		return false
	}
	if e.mode == Delta {
		e.mode = StateOfTheWorld
	} else {
		e.mode = Delta
	}
	e.board.set(func(st *State) { st.Mode = e.mode })
	first := !e.fellBack
	e.fellBack = true
	e.options.Log.Info("variant of xds not implemented by the server, trying the other", "address", e.options.Address, "mode", e.mode.String())
	return first
}

// failed notes an attempt without a message, and when to try again.
func (e *engine) failed(err error) {
	e.failures++
	wait := e.options.Backoff.After(e.failures)
	if slow(err) {
		wait = e.options.Backoff.slow()
	}
	e.due = time.Now().Add(wait)
	e.board.set(func(st *State) { st.Attempts, st.Err = e.failures, err })
	e.observe(Observation{Kind: ConnectFailed, Err: err, Delay: wait})
	if gist(err) == e.lastDown {
		return
	}
	e.lastDown = gist(err)
	e.options.Log.Warn("no stream, the last known state stays", "address", e.options.Address, "err", err)
	for _, b := range e.typeStates {
		b.cached.lost(fmt.Errorf("not connected: %w", err), notConnected)
	}
}

// slow says whether trying soon again is useless.
func slow(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrAsksTooMuch)
}

// gist is an error without its ports and sizes, which differ at each attempt: it
// is reported once.
func gist(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
}

// Errors that State, Event and Observation wrap, for those who decide by them.
var (
	// ErrDenied says that the server does not accept who we are or where we
	// come from. It is tried again slowly, with the files read anew.
	ErrDenied = errors.New("the server refused the client")
	// ErrTooLarge says that a response was larger than MaxReceive. What was
	// known before stays.
	ErrTooLarge = errors.New("response larger than the limit")
	// ErrAsksTooMuch says that the server takes no request as large as ours. In
	// the state of the world one request has to hold all names.
	ErrAsksTooMuch = errors.New("request larger than the server takes")
)

// explain says which server ended a stream, and what to do where we know.
func (o Options) explain(err error) error {
	s := status.Convert(err)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("xds %s: the server closed the stream", o.Address)
	case tooLarge(s) && !o.ours(s):
		return fmt.Errorf("xds %s: %w: raise istiod's ISTIO_GPRC_MAXRECVMSGSIZE, or select fewer services: %w", o.Address, ErrAsksTooMuch, err)
	case tooLarge(s):
		return fmt.Errorf("xds %s: %w of %d bytes: raise the receive limit: %w", o.Address, ErrTooLarge, o.MaxReceive, err)
	case s.Code() == codes.Unauthenticated, s.Code() == codes.PermissionDenied:
		return fmt.Errorf("xds %s: %w: check the token, the client certificate and the node's namespace: %w", o.Address, ErrDenied, err)
	default:
		return fmt.Errorf("xds %s: %w", o.Address, err)
	}
}

// tooLarge recognises gRPC's own refusal of a message; the code alone is also
// what a server says that limits the rate of requests.
func tooLarge(s *status.Status) bool {
	return s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max")
}

// ours says whether the limit in such a refusal is that of what we receive: a
// server words its own alike. Its default is 4 MiB.
func (o Options) ours(s *status.Status) bool {
	limit := strconv.Itoa(o.MaxReceive)
	return strings.HasSuffix(s.Message(), " vs. "+limit+")") || strings.HasSuffix(s.Message(), " max "+limit)
}
