package config

import (
	"fmt"
	"strings"
)

// Lookup returns the value of an environment variable, and whether it is set.
type Lookup func(name string) (string, bool)

// expand replaces ${VAR} and ${VAR:-default} in a value; $${ stands for ${.
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
	if !validVariable(name) {
		return "", fmt.Errorf("%q is no name of an environment variable", name)
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

func validVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
