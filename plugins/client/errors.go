package client

import (
	"errors"
	"fmt"

	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The causes that an application may want to distinguish. An error of Resolve, Watch.Next,
// WaitVisible or Status, and Snapshot.Err, wraps at most one of them.
//
// An error of Resolve or Watch.Next says that there is no answer. Snapshot.Err says that the
// last known answer remains. A snapshot without error and without endpoints says that there
// is no provider.
var (
	// ErrUnreachable says that the registry was never connected, or no longer is. Known
	// endpoints remain.
	ErrUnreachable = errors.New("the registry is unreachable")

	// ErrDenied says that the registry is connected, but refuses to answer or to accept what
	// is published. Known endpoints remain.
	ErrDenied = errors.New("the registry denies access")

	// ErrPending says that the registry is connected but has not reported yet.
	ErrPending = errors.New("not reported yet")

	// ErrUnreadable says that the registry is connected but cannot report, for example because
	// the parent of all services was deleted. Known endpoints remain.
	ErrUnreadable = errors.New("the registry cannot report it")

	// ErrTooLarge says that the registry reports more than a client holds: 100,000 services,
	// 1,000,000 endpoints or 128 MiB. A bridge has the same limits.
	ErrTooLarge = errors.New("more than a client holds")

	// ErrConflict says that another live process provides the same entry, or uses the same
	// identity.
	ErrConflict = errors.New("conflicts with another live process")

	// ErrInvalid says that the registry cannot hold an instance, or anything under the
	// requested name.
	ErrInvalid = errors.New("the registry cannot hold it")

	// ErrOwnAddressUnknown says that the host address of this process in the mesh is unknown,
	// so that its service keys cannot be published. Consumers are not affected.
	ErrOwnAddressUnknown = errors.New("own host address in the mesh is unknown")

	// ErrDebugRefused says that istiod is connected, but its debug API refuses to show the
	// service keys. Queries by host still work.
	ErrDebugRefused = errors.New("istiod's debug API refuses to show the service keys")

	// ErrStateFile says that Options.StateFile cannot be written. Answers are not affected.
	ErrStateFile = errors.New("the state file cannot be written")

	// ErrClosed says that the client, or the watch, was closed.
	ErrClosed = errors.New("closed")
)

// cause returns the cause that an error wraps, or nil.

// cause returns the cause that an error wraps; nil where it wraps none.
func cause(err error) error {
	for _, known := range []error{
		ErrUnreachable, ErrDenied, ErrPending, ErrUnreadable, ErrTooLarge, ErrConflict, ErrInvalid,
		ErrOwnAddressUnknown, ErrDebugRefused, ErrStateFile, ErrClosed,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	return nil
}

// caused wraps an error with its cause. If the error does not show one, the cause is other.
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

// refusesKeys reports whether istiod's debug API refused to show the service keys.
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

// Caused wraps an error with its cause. If the error does not show one, the cause is other.
func Caused(_ seam.Key, err, other error) error { return caused(err, other) }

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
