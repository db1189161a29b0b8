package client

import (
	"errors"
	"fmt"

	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/locate"
)

// The causes that an application may want to tell apart. An error that Resolve,
// Watch.Next, WaitVisible or Status gives wraps at most one of them.
var (
	// ErrUnreachable says that the registry has not been reached, or no longer
	// is. What was known stays.
	ErrUnreachable = errors.New("the registry cannot be reached")

	// ErrOwnAddressUnknown says that it is not known at which host address of
	// the mesh this process is, so that its service keys cannot be published.
	// Consumers are not concerned.
	ErrOwnAddressUnknown = errors.New("own host address in the mesh is unknown")

	// ErrDebugRefused says that istiod is reached and its debug API refuses to
	// show the service keys. Queries by host go on.
	ErrDebugRefused = errors.New("istiod's debug API refuses to show the service keys")

	// ErrClosed says that the client, or the watch, was closed.
	ErrClosed = errors.New("closed")
)

// caused wraps an error with the cause it belongs to.
func caused(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrUnreachable, ErrOwnAddressUnknown, ErrDebugRefused, ErrClosed} {
		if errors.Is(err, known) {
			return err
		}
	}
	if errors.Is(err, locate.ErrNoService) {
		return fmt.Errorf("%w: %w", ErrOwnAddressUnknown, err)
	}
	if e, ok := errors.AsType[*debug.Error](err); ok {
		switch e.Cause {
		case debug.Unauthorized, debug.Forbidden, debug.NotServed, debug.Refused, debug.NoToken, debug.Plaintext:
			return fmt.Errorf("%w: %w", ErrDebugRefused, err)
		default:
		}
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}
