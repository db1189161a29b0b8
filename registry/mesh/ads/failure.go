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
