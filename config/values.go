package config

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration, written as in "30s" or "1m30s".
type Duration time.Duration

// Std returns the duration as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the duration as it is written in the file.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns the duration as it is written in the file.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses a duration. It refuses negative durations and numbers
// without a unit.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("must be a duration, such as 30s, 5m or 1h30m (got %q)", text)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes, written as in "64MiB".
type Size int64

// String returns the size in the largest unit that leaves a whole number.
func (s Size) String() string {
	n, unit := int64(s), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, larger
	}
	return strconv.FormatInt(n, 10) + unit
}

// MarshalText returns the size as it is written in the file.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a size in B, KiB, MiB or GiB; a number without a unit is
// bytes.
func (s *Size) UnmarshalText(text []byte) error {
	digits := strings.TrimRight(string(text), "BGKMi")
	factors := map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
	factor, ok := factors[string(text[len(digits):])]
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || !ok || n < 0 || n > math.MaxInt64/factor {
		return fmt.Errorf("must be a size, such as 512KiB or 64MiB (got %q)", text)
	}
	*s = Size(n * factor)
	return nil
}

// Secret is a text that fmt, slog and JSON do not print.
type Secret string

const redacted = "<redacted>"

// Reveal returns the secret itself, for the registry that requires it.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret.
func (Secret) String() string { return redacted }

// GoString hides the secret.
func (Secret) GoString() string { return redacted }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// minKey is the minimum length of a key, which must not be guessed.
const minKey = 16

// ReadKeys reads the keys of a file, one per line, and skips empty lines. A key
// shorter than minKey is an error.
func ReadKeys(path string) ([]Secret, error) {
	text, err := ReadSecret(path)
	if err != nil {
		return nil, err
	}
	var keys []Secret
	for line := range strings.Lines(text.Reveal()) {
		key := strings.TrimSpace(line)
		if key == "" {
			continue
		}
		if len(key) < minKey {
			return nil, fmt.Errorf("secret file %s: key %d is shorter than %d characters; "+
				"create one with: openssl rand -base64 32", path, len(keys)+1, minKey)
		}
		keys = append(keys, Secret(key))
	}
	return keys, nil
}

// ReadSecret reads a secret from a file, without white space around it such as a
// trailing newline. An empty file is an error.
func ReadSecret(path string) (Secret, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("secret file: %w", err)
	}
	text := strings.TrimSpace(string(raw))
	if text == "" {
		return "", fmt.Errorf("secret file %s is empty", path)
	}
	return Secret(text), nil
}

// Lookup returns the value of an environment variable, and whether it is set.
type Lookup func(name string) (string, bool)

// expand replaces ${VAR} and ${VAR:-default} in a value; $${ is a literal ${.
// A variable that is not set and has no default is an error.
func expand(text string, lookup Lookup) (string, error) {
	var out strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			out.WriteString(text)
			return out.String(), nil
		}
		if i > 0 && text[i-1] == '$' {
			out.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		inner, rest, closed := strings.Cut(text[i+2:], "}")
		if !closed {
			return "", fmt.Errorf("%q has no closing }; write $${ for a literal ${", text[i:])
		}
		value, err := variable(inner, lookup)
		if err != nil {
			return "", err
		}
		out.WriteString(text[:i] + value)
		text = rest
	}
}

func variable(inner string, lookup Lookup) (string, error) {
	name, fallback, has := strings.Cut(inner, ":-")
	if !variableForm.MatchString(name) {
		return "", fmt.Errorf("%q is not the name of an environment variable", name)
	}
	value, set := lookup(name)
	switch {
	case set && (value != "" || !has):
		return value, nil
	case has:
		return fallback, nil
	}
	return "", fmt.Errorf("environment variable %s is not set; set it or write ${%s:-default}", name, name)
}
