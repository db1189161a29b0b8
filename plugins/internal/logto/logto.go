// Package logto makes log/slog write through the logger of a framework that accepts a message
// with keys and values.
package logto

import (
	"context"
	"log/slog"
	"slices"
)

// Write writes one record. The pairs are keys and values in turn.
type Write func(level slog.Level, message string, pairs []any) error

// handler is a slog.Handler.
type handler struct {
	write Write
	level slog.Leveler
	group string // ends with a dot, or is empty
	pairs []any
}

// New returns a logger that writes records of at least the given level.
func New(level slog.Leveler, write Write) *slog.Logger {
	return slog.New(&handler{write: write, level: level})
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	pairs := slices.Clone(h.pairs)
	r.Attrs(func(a slog.Attr) bool {
		pairs = add(pairs, h.group, a)
		return true
	})
	return h.write(r.Level, r.Message, pairs)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *h
	more.pairs = slices.Clone(h.pairs)
	for _, a := range attrs {
		more.pairs = add(more.pairs, h.group, a)
	}
	return &more
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	more := *h
	if name != "" {
		more.group += name + "."
	}
	return &more
}

// add appends an attribute to pairs. It appends each attribute of a group separately.
func add(pairs []any, group string, a slog.Attr) []any {
	value := a.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		if a.Key == "" {
			return pairs
		}
		return append(pairs, group+a.Key, value.Any())
	}
	if a.Key != "" {
		group += a.Key + "."
	}
	for _, inner := range value.Group() {
		pairs = add(pairs, group, inner)
	}
	return pairs
}
