package ads

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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

// Brief returns an error with the text of the cause, without what gRPC puts around it. Its
// status is kept.
func Brief(err error) error {
	if err == nil {
		return nil
	}
	return briefError{err}
}

type briefError struct{ err error }

func (e briefError) Unwrap() error { return e.err }

// Error returns the message of a status, with its code if that says more than that there is
// no connection.
func (e briefError) Error() string {
	s, ok := e.err.(interface{ GRPCStatus() *status.Status })
	if !ok {
		return e.err.Error()
	}
	text := s.GRPCStatus().Message()
	if inner, is := strings.CutPrefix(text, `connection error: desc = "`); is {
		text = strings.TrimSuffix(inner, `"`)
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "transport: "), "Error while dialing: ")
	if code := s.GRPCStatus().Code(); code != codes.Unavailable {
		text = code.String() + ": " + text
	}
	return text
}
