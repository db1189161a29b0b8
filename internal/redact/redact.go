// Package redact hides secrets in the output of the bridge. Some providers register
// passwords and tokens: as parameters of a URL, as metadata, or in a name that cannot be
// decoded. Data that is stored in a registry is never redacted.
//
// Each text is redacted once, when it leaves the bridge: in responses of the status API,
// output of commands, log lines, probes and the audit file.
package redact

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// Hidden replaces a secret value.
const Hidden = "<redacted>"

// Key reports whether the value of a parameter with the name is secret.
func Key(name string) bool {
	k := strings.ToLower(name)
	if k == "ak" || k == "sk" ||
		slices.ContainsFunc(secretWords(), func(part string) bool { return strings.Contains(k, part) }) {
		return true
	}
	words := strings.FieldsFunc(k, func(r rune) bool { return r == '.' || r == '-' || r == '_' })
	return slices.ContainsFunc(words, func(word string) bool { return word == "pass" || word == "pwd" || word == "jwt" })
}

// secretWords returns the texts that mark a name: the value of a name that contains one of
// them is secret.
func secretWords() []string {
	return []string{
		"password", "passwd", "passphrase", "token", "secret", "credential", "authorization", "signature", "private",
		"accesskey", "access-key", "access_key", "apikey", "api-key", "api_key",
	}
}

// endsSecret reports whether a name before a colon and a space ends in a secret word, so
// that a secret value follows. After passwordFile, and after token in messages of the
// bridge, a message follows.
func endsSecret(name string) bool {
	k := strings.ToLower(name)
	all := append(secretWords(), "pass", "pwd", "jwt", "ak", "sk")
	return k != "token" && slices.ContainsFunc(all, func(suffix string) bool { return strings.HasSuffix(k, suffix) })
}

// Map returns a copy of a map in which the values of secret keys are hidden.
func Map[M ~map[string]string](m M) M {
	out := maps.Clone(m)
	for k := range out {
		if Key(k) {
			out[k] = Hidden
		}
	}
	return out
}

// JSON returns a JSON document with Text applied to each string in it.
func JSON(document []byte) []byte {
	var out []byte
	done := 0
	for i := 0; i < len(document); i++ {
		if document[i] != '"' {
			continue
		}
		end := i + 1
		for end < len(document) && document[end] != '"' {
			if document[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(document))
		if changed, ok := redactLiteral(document[i:end]); ok {
			out = append(append(out, document[done:i]...), changed...)
			done = end
		}
		i = end - 1
	}
	if out == nil {
		return document
	}
	return append(out, document[done:]...)
}

// redactLiteral returns a JSON string with Text applied; false if that does not change it.
func redactLiteral(quoted []byte) ([]byte, bool) {
	if !bytes.ContainsAny(quoted, `=:%\`) && !bytes.Contains(quoted, []byte("earer")) {
		return nil, false
	}
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return nil, false
	}
	redacted := Text(text)
	if redacted == text {
		return nil, false
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(bytes.Contains(quoted, []byte(`\u00`))) // keep the form of the original
	if err := enc.Encode(redacted); err != nil {
		panic(err) // cannot happen for a string
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), true
}

// Handler returns a handler that applies Text to the records of another handler.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ next slog.Handler }

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	redacted := slog.NewRecord(r.Time, r.Level, Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		redacted.AddAttrs(redactAttr(a))
		return true
	})
	return h.next.Handle(ctx, redacted)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	redacted := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		redacted[i] = redactAttr(a)
	}
	return handler{h.next.WithAttrs(redacted)}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.next.WithGroup(name)} }

// redactAttr returns an attribute without secrets. Values that are printed as text, such
// as errors, are redacted. Numbers and times contain no secrets.
func redactAttr(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString, slog.KindAny:
		text := v.String()
		if redacted := Text(text); redacted != text {
			return slog.String(a.Key, redacted)
		}
	case slog.KindGroup:
		all := v.Group()
		redacted := make([]any, len(all))
		for i := range all {
			redacted[i] = redactAttr(all[i])
		}
		return slog.Group(a.Key, redacted...)
	default:
	}
	return a
}
