package ads

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
