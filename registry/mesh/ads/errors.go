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

// The errors of State, Event and Observation wrap these. The client retries them slowly.
var (
	// ErrDenied means that the server rejected the client's credentials or address. The
	// next attempt reads their files again.
	ErrDenied = errors.New("the server refused the client")

	// ErrTooLarge means that a response was larger than MaxReceive.
	ErrTooLarge = errors.New("response larger than the limit")

	// ErrRequestTooLarge means that our request was larger than the server accepts. In state
	// of the world, one request holds all names.
	ErrRequestTooLarge = errors.New("request larger than the server accepts")
)

// explain adds the server, and what an operator can do, to the error of a stream.
func (o Options) explain(err error) error {
	s := status.Convert(err)
	err = Brief(err)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("xds %s: the server closed the stream", o.Address)
	case isTooLarge(s) && !o.isReceiveLimit(s):
		return fmt.Errorf("xds %s: %w: raise istiod's ISTIO_GPRC_MAXRECVMSGSIZE, or select fewer services: %w",
			o.Address, ErrRequestTooLarge, err)
	case isTooLarge(s):
		return fmt.Errorf("xds %s: %w of %d bytes: raise the receive limit: %w",
			o.Address, ErrTooLarge, o.MaxReceive, err)
	case s.Code() == codes.Unauthenticated, s.Code() == codes.PermissionDenied:
		return fmt.Errorf("xds %s: %w: check the token, the client certificate and the node's namespace: %w",
			o.Address, ErrDenied, err)
	default:
		return fmt.Errorf("xds %s: %w", o.Address, err)
	}
}

// isTooLarge reports whether gRPC rejected a message for its size. The code is not enough:
// servers also return it when they limit the rate of requests.
func isTooLarge(s *status.Status) bool {
	return s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max")
}

// isReceiveLimit reports whether the exceeded limit is that of our receiver. A server's gRPC
// uses the same words for its own limit, which is 4 MiB by default.
func (o Options) isReceiveLimit(s *status.Status) bool {
	limit := strconv.Itoa(o.MaxReceive)
	return strings.HasSuffix(s.Message(), " vs. "+limit+")") || strings.HasSuffix(s.Message(), " max "+limit)
}

// retriesSlowly reports whether an early retry is useless.
func retriesSlowly(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrRequestTooLarge)
}

// errorKey returns the text without digits. Errors that differ only in ports and sizes have
// the same key, and are reported once.
func errorKey(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
}

// Brief returns an error whose text is only the cause, without the prefixes that gRPC adds.
// It wraps err, so that status.Code still works.
func Brief(err error) error {
	if err == nil {
		return nil
	}
	return briefError{err}
}

type briefError struct{ err error }

func (e briefError) Unwrap() error { return e.err }

// Error returns the message of the status, preceded by its code unless that is Unavailable.
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
