package client

import (
	"errors"
	"fmt"

	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The causes that an application may want to distinguish. An error of Resolve,
// Watch.Next, WaitVisible or Status, and Snapshot.Err, wrap at most one of them.
//
// An error of Resolve or Watch.Next says that nothing is known, Snapshot.Err that
// what was known stays. A snapshot without either and without endpoints says that
// there is nobody.
var (
	// ErrUnreachable says that the registry has not been connected to, or no longer
	// is. What was known stays.
	ErrUnreachable = errors.New("the registry is unreachable")

	// ErrDenied says that the registry is connected and refuses to answer, or to
	// accept what is provided. What was known stays.
	ErrDenied = errors.New("the registry denies it")

	// ErrPending says that the registry is connected and has not reported yet.
	ErrPending = errors.New("not reported yet")

	// ErrUnreadable says that the registry is connected and cannot report, such as below
	// a root that was deleted. What was known stays.
	ErrUnreadable = errors.New("the registry cannot report it")

	// ErrTooLarge says that the registry reports more than a client holds: 100,000
	// services, 1,000,000 endpoints or 128 MiB, the bounds of a bridge.
	ErrTooLarge = errors.New("more than a client holds")

	// ErrConflict says that another live process provides the same, or uses the
	// same identity.
	ErrConflict = errors.New("conflicts with another live process")

	// ErrInvalid says that the registry cannot hold an instance, or anything under the
	// name that is asked for.
	ErrInvalid = errors.New("the registry cannot hold it")

	// ErrOwnAddressUnknown says that it is not known at which host address of
	// the mesh this process is, so that its service keys cannot be published.
	// Consumers are not concerned.
	ErrOwnAddressUnknown = errors.New("own host address in the mesh is unknown")

	// ErrDebugRefused says that istiod is connected and its debug API refuses to
	// show the service keys. Queries by host continue.
	ErrDebugRefused = errors.New("istiod's debug API refuses to show the service keys")

	// ErrStateFile says that Options.StateFile cannot be written. Answers are not
	// concerned.
	ErrStateFile = errors.New("the state file cannot be written")

	// ErrClosed says that the client, or the watch, was closed.
	ErrClosed = errors.New("closed")
)

// cause returns the cause that an error wraps; nil where it wraps none.
func cause(err error) error {
	for _, known := range []error{
		ErrUnreachable, ErrDenied, ErrPending, ErrUnreadable, ErrTooLarge, ErrConflict, ErrInvalid, ErrOwnAddressUnknown, ErrDebugRefused, ErrStateFile, ErrClosed,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	return nil
}

// caused wraps an error with the cause it belongs to, other where nothing else
// is known of it.
func caused(err, other error) error {
	switch {
	case err == nil || cause(err) != nil:
		return err
	case refusesKeys(err):
		other = ErrDebugRefused
	case errors.Is(err, registry.ErrRefused), denied(err):
		other = ErrDenied
	case errors.Is(err, registry.ErrLimit):
		other = ErrTooLarge
	}
	return fmt.Errorf("%w: %w", other, err)
}

// refusesKeys reports whether an error is that of istiod's debug API, and a refusal.
func refusesKeys(err error) bool {
	e, ok := errors.AsType[interface {
		error
		RefusesKeys() bool
	}](err)
	return ok && e.RefusesKeys()
}

// denied reports whether a registry refused the credentials.
func denied(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Denied() bool
	}](err)
	return ok && e.Denied()
}

// Caused wraps an error with the cause that it belongs to, other where nothing else is
// known of it.
func Caused(_ seam.Key, err, other error) error { return caused(err, other) }

// first returns the first error there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
