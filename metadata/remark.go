package metadata

import (
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Remark returns an entry with another mark in place of its own, and stamped
// anew where it is stamped; one without a mark that can be read comes back as
// it is.
func Remark(e registry.Entry, change func(Mark) Mark) registry.Entry {
	from, to, ok := markIn(e.Value)
	if !ok {
		return e
	}
	m, err := ParseMark(e.Value[from:to])
	if err != nil {
		return e
	}
	e.Value = Stamp(e.Value[:from] + change(m).String() + e.Value[to:])
	return e
}

// MarkOf returns the mark in the value of an entry. The error wraps ErrMark. Endpoints of
// a ServiceEntry have none: their head has it.
func MarkOf(e registry.Entry) (Mark, error) {
	from, to, ok := markIn(e.Value)
	if !ok {
		return Mark{}, fmt.Errorf("%w: there is none", ErrMark)
	}
	return ParseMark(e.Value[from:to])
}

// Bare returns an entry without its mark, whatever that says, and stamped anew
// where it is stamped: two entries that differ in their marks alone are the same
// without them, whoever took them off.
func Bare(e registry.Entry) registry.Entry {
	e.Value = Stamp(unmarked(e.Value))
	return e
}

func unmarked(v string) string {
	from, to, ok := markIn(v)
	if !ok {
		return v
	}
	if isJSON(v) {
		from, to = strings.LastIndexByte(v[:from-len(`":"`)], '"'), to+1
		switch {
		case strings.HasPrefix(v[to:], ","):
			to++
		case strings.HasSuffix(v[:from], ","):
			from--
		}
	} else {
		from -= len(urlMark)
		if to < len(v) {
			to++ // the & after it; what is before it stays
		} else {
			from--
		}
	}
	return v[:from] + v[to:]
}

// HostOf returns the host address of the mesh that an entry says it came from,
// as fqdn:port; empty where it does not say.
func HostOf(e registry.Entry) string {
	from, to, _ := fieldIn(e.Value, "meshHostAddr")
	return e.Value[from:to]
}

// urlMark begins the mark as a parameter of a URL. In canonical JSON it is a field.
const urlMark = MarkKey + "="

// MarkAnnotation is the name of the mark in annotations of Kubernetes.
const MarkAnnotation = "xds-bridge/mark"

func isJSON(value string) bool { return strings.HasPrefix(value, "{") }

// markIn returns where the mark lies in a value.
func markIn(value string) (from, to int, ok bool) {
	if from, to, ok = fieldIn(value, MarkKey); !ok && isJSON(value) {
		return fieldIn(value, MarkAnnotation)
	}
	return from, to, ok
}

// fieldIn returns where the text of a parameter or a field lies in a value.
func fieldIn(value, key string) (from, to int, ok bool) {
	if isJSON(value) {
		inJSON := `"` + key + `":"`
		i := strings.Index(value, inJSON)
		if i < 0 {
			return 0, 0, false
		}
		from = i + len(inJSON)
		n := strings.IndexByte(value[from:], '"')
		return from, from + n, n >= 0
	}
	for rest := value; ; {
		i := strings.Index(rest, key+"=")
		if i < 0 {
			return 0, 0, false
		}
		rest = rest[i+len(key)+1:]
		from = len(value) - len(rest)
		if before := from - len(key) - 2; before >= 0 && (value[before] == '?' || value[before] == '&') {
			to, _, _ := strings.Cut(rest, "&")
			return from, from + len(to), true
		}
	}
}
