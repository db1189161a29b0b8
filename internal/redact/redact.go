// Package redact hides secrets in what people are shown. What providers
// register is theirs, and some register passwords and tokens: as parameters of
// a URL, as metadata, in a name that cannot be read. What is stored in a
// registry is never touched by it.
//
// It is applied once where a text leaves: to answers of the status API, output of
// commands, log lines, probes and the audit file.
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

// Key reports whether the name of a parameter says that its value is secret.
func Key(name string) bool {
	k := strings.ToLower(name)
	if k == "ak" || k == "sk" || slices.ContainsFunc(secrets(), func(part string) bool { return strings.Contains(k, part) }) {
		return true
	}
	words := strings.FieldsFunc(k, func(r rune) bool { return r == '.' || r == '-' || r == '_' })
	return slices.ContainsFunc(words, func(word string) bool { return word == "pass" || word == "pwd" || word == "jwt" })
}

// secrets are texts that make the value of a name that holds one a secret.
func secrets() []string {
	return []string{
		"password", "passwd", "passphrase", "token", "secret", "credential", "authorization", "signature", "private",
		"accesskey", "access-key", "access_key", "apikey", "api-key", "api_key",
	}
}

// ends reports whether a name ends in what makes its value secret: passwordFile
// before a colon and a space begins a message, and password a value. A token
// alone begins messages of ours.
func ends(name string) bool {
	k := strings.ToLower(name)
	all := append(secrets(), "pass", "pwd", "jwt", "ak", "sk")
	return k != "token" && slices.ContainsFunc(all, func(suffix string) bool { return strings.HasSuffix(k, suffix) })
}

// Map returns a map without the values of keys that hold secrets.
func Map[M ~map[string]string](m M) M {
	out := maps.Clone(m)
	for k := range out {
		if Key(k) {
			out[k] = Hidden
		}
	}
	return out
}

// JSON returns a document with Text applied to each text in it.
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
		if changed, ok := literal(document[i:end]); ok {
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

// literal returns a literal of JSON with Text applied, false if that
// changes nothing.
func literal(quoted []byte) ([]byte, bool) {
	if !bytes.ContainsAny(quoted, `=:%\`) && !bytes.Contains(quoted, []byte("earer")) {
		return nil, false
	}
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return nil, false
	}
	less := Text(text)
	if less == text {
		return nil, false
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(bytes.Contains(quoted, []byte(`\u00`))) // as whoever wrote it did
	if err := enc.Encode(less); err != nil {
		panic(err) // of a text
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), true
}

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
	return h.next.Handle(ctx, less)
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
