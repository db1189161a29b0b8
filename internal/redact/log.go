package redact

import (
	"context"
	"log/slog"
)

// Handler returns a handler that applies Text to what another one writes.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ next slog.Handler }

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	less := slog.NewRecord(r.Time, r.Level, Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		less.AddAttrs(attr(a))
		return true
	})
	return h.next.Handle(ctx, less) //nolint:wrapcheck // it is the other's own
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	less := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		less[i] = attr(a)
	}
	return handler{h.next.WithAttrs(less)}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.next.WithGroup(name)} }

// attr returns an attribute that shows no secret. Texts, errors and whatever
// else is printed as text are looked at; numbers and times hold none.
func attr(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString, slog.KindAny:
		text := v.String()
		if less := Text(text); less != text {
			return slog.String(a.Key, less)
		}
	case slog.KindGroup:
		all := v.Group()
		less := make([]any, len(all))
		for i := range all {
			less[i] = attr(all[i])
		}
		return slog.Group(a.Key, less...)
	default:
	}
	return a
}
