// Package gostlog lets log/slog write through the logger of dubbogo/gost, so that lines of
// the bridge and of dubbo-go are in one log.
package gostlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// Logger is the used part of gost's logger.Logger.
type Logger interface {
	Debug(args ...any)
	Info(args ...any)
	Warn(args ...any)
	Error(args ...any)
}

// Handler is a slog.Handler that writes each record as one line of text: the message,
// followed by key=value pairs, quoted if necessary. The logger adds time and level. A
// Handler is safe for concurrent use.
type Handler struct {
	current func() Logger
	line    *line
	text    slog.Handler
}

// line is the buffer that a handler shares with all handlers derived from it.
type line struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// New returns a handler for records of at least the given level. It calls current for each
// record, so that the logger can be replaced.
func New(current func() Logger, level slog.Leveler) *Handler {
	l := &line{}
	text := slog.NewTextHandler(&l.buf, &slog.HandlerOptions{Level: level, ReplaceAttr: dropBuiltins})
	return &Handler{current: current, line: l, text: text}
}

// dropBuiltins drops time and level, which the logger adds, and the message, which is
// written without a key.
func dropBuiltins(groups []string, a slog.Attr) slog.Attr {
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
