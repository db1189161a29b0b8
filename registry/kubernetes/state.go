package kubernetes

import (
	"context"
	"errors"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// State is how a target stands with its store.
type State struct {
	Err   error     // of the last call; nil: it was answered, if only by a refusal of one object
	At    time.Time // when that was; zero: there was none yet
	Since time.Time // since when it has been so
}

// State returns how the last call went.
func (t *Target) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// answered notes how a call went.
func (t *Target) answered(err error) {
	if errors.Is(err, registry.ErrRefused) || errors.Is(err, registry.ErrConflict) {
		err = nil
	}
	t.setState(err)
}

func (t *Target) setState(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = t.state.after(err, time.Now())
}

// after returns the state after a call.
func (s State) after(err error, now time.Time) State {
	if (s.Err == nil) != (err == nil) || s.Since.IsZero() {
		s.Since = now
	}
	s.Err, s.At = err, now
	return s
}

// observed is a store whose calls a target notes.
type observed struct {
	Store

	target *Target
}

func (s observed) List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error) {
	all, err := s.Store.List(ctx, kind, namespace)
	s.target.setState(err)
	return all, err //nolint:wrapcheck // handed on
}

func (s observed) Get(ctx context.Context, kind, namespace, name string) (*serviceentry.Object, error) {
	o, err := s.Store.Get(ctx, kind, namespace, name)
	s.target.answered(err)
	return o, err //nolint:wrapcheck // handed on
}

func (s observed) Put(ctx context.Context, o serviceentry.Object) error {
	err := s.Store.Put(ctx, o)
	s.target.answered(err)
	return err //nolint:wrapcheck // handed on
}

func (s observed) Delete(ctx context.Context, o serviceentry.Object) error {
	err := s.Store.Delete(ctx, o)
	s.target.answered(err)
	return err //nolint:wrapcheck // handed on
}
