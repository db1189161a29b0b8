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

// slowestPing bounds the interval of pings to servers that refuse frequent ones.
const slowestPing = 10 * time.Minute

// connector is what the next connection and the next stream are made from.
type connector struct {
	options      *Options
	mode         Mode
	modeSwitched bool // since a message was received
	pingInterval time.Duration

	connections int      // connections so far
	replaceUpTo int      // connections up to this number are to be replaced
	preferred   []string // addresses that the replacement tries first
	lastAddress string   // address of the connection that delivered last

	nextAttempt          time.Time // not before this is another stream opened
	nextSuccessorAttempt time.Time // not before this is a second stream opened
	failures             int       // in a row
	reportedErrorKey     string    // key of the failure that subscribers were notified of
}

func (c *connector) replaceConnection(first []string) {
	c.replaceUpTo, c.preferred = c.connections, first
}

// dial returns a session on a new connection, before it opens its stream.
func (c *connector) dial() (*adsStream, error) {
	d := &dialer{options: c.options, preferred: c.preferred, avoided: c.lastAddress}
	conn, err := c.options.dial(c.pingInterval, d)
	if err != nil {
		return nil, err
	}
	c.connections++
	return &adsStream{conn: conn, dialer: d, number: c.connections, mode: c.mode, requests: make(chan discoveryRequest), started: time.Now()}, nil
}

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

// retriesSlowly reports whether trying soon again is useless.
func retriesSlowly(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrRequestTooLarge)
}

// errorKey is the same for errors that differ in ports and sizes only, so that they
// are reported once.
func errorKey(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
}

// Errors that State, Event and Observation wrap.
var (
	// ErrDenied says that the server does not accept the client or its address. It
	// is retried slowly, and files are read again.
	ErrDenied = errors.New("the server refused the client")
	// ErrTooLarge says that a response was larger than MaxReceive.
	ErrTooLarge = errors.New("response larger than the limit")
	// ErrRequestTooLarge says that the server accepts no request as large as ours.
	// In the state of the world one request holds all names.
	ErrRequestTooLarge = errors.New("request larger than the server accepts")
)

// explain says which server ended a stream, and what to do about it.
func (o Options) explain(err error) error {
	s := status.Convert(err)
	err = Brief(err)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("xds %s: the server closed the stream", o.Address)
	case isTooLarge(s) && !o.isReceiveLimit(s):
		return fmt.Errorf("xds %s: %w: raise istiod's ISTIO_GPRC_MAXRECVMSGSIZE, or select fewer services: %w", o.Address, ErrRequestTooLarge, err)
	case isTooLarge(s):
		return fmt.Errorf("xds %s: %w of %d bytes: raise the receive limit: %w", o.Address, ErrTooLarge, o.MaxReceive, err)
	case s.Code() == codes.Unauthenticated, s.Code() == codes.PermissionDenied:
		return fmt.Errorf("xds %s: %w: check the token, the client certificate and the node's namespace: %w", o.Address, ErrDenied, err)
	default:
		return fmt.Errorf("xds %s: %w", o.Address, err)
	}
}

// isTooLarge recognises gRPC's own refusal of a message. A server that limits the
// rate of requests returns the same code.
func isTooLarge(s *status.Status) bool {
	return s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max")
}

// isReceiveLimit reports whether the limit in such a refusal is that of our
// receiver; a server words its own the same. Its default is 4 MiB.
func (o Options) isReceiveLimit(s *status.Status) bool {
	limit := strconv.Itoa(o.MaxReceive)
	return strings.HasSuffix(s.Message(), " vs. "+limit+")") || strings.HasSuffix(s.Message(), " max "+limit)
}
