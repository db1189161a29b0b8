// Package gostlog has log/slog write through the logger of dubbogo/gost, so that the
// bridge's lines are among those of dubbo-go.
package gostlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// Logger is the part of gost's logger.Logger that is used.
type Logger interface {
	Debug(args ...any)
	Info(args ...any)
	Warn(args ...any)
	Error(args ...any)
}

// Handler is a slog.Handler that writes each record as one line of text: the message,
// then key=value, quoted if necessary. The logger adds time and level. It is safe for
// concurrent use.
type Handler struct {
	current func() Logger
	line    *line
	text    slog.Handler
}

// line is the buffer of a handler and all that are derived from it.
type line struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// New returns a handler for records of at least a level. It calls current for each
// record, so that the logger may be replaced.
func New(current func() Logger, level slog.Leveler) *Handler {
	l := &line{}
	text := slog.NewTextHandler(&l.buf, &slog.HandlerOptions{Level: level, ReplaceAttr: leaveOut})
	return &Handler{current: current, line: l, text: text}
}

// leaveOut drops what the logger adds itself, and the message, which has no key.
func leaveOut(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

// Enabled reports whether records of a level are written.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.text.Enabled(ctx, level)
}

// Handle writes a record.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	text, err := h.render(ctx, r)
	if err != nil {
		return err
	}
	switch out := h.current(); {
	case r.Level >= slog.LevelError:
		out.Error(text)
	case r.Level >= slog.LevelWarn:
		out.Warn(text)
	case r.Level >= slog.LevelInfo:
		out.Info(text)
	default:
		out.Debug(text)
	}
	return nil
}

func (h *Handler) render(ctx context.Context, r slog.Record) (string, error) {
	h.line.mu.Lock()
	defer h.line.mu.Unlock()
	h.line.buf.Reset()
	if err := h.text.Handle(ctx, r); err != nil {
		return "", fmt.Errorf("render log line: %w", err)
	}
	return strings.TrimSpace(r.Message + " " + h.line.buf.String()), nil
}

// WithAttrs returns a handler that adds attributes to every record.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{current: h.current, line: h.line, text: h.text.WithAttrs(attrs)}
}

// WithGroup returns a handler that puts later attributes into a group.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{current: h.current, line: h.line, text: h.text.WithGroup(name)}
}
