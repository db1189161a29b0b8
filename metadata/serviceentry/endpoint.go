package serviceentry

import (
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// Endpoint is one endpoint of a ServiceEntry, as the value of its entry has
// it in JSON. A registry that is read whole has hundreds of thousands of them,
// most without labels: these are written and read without reflection.
type Endpoint struct {
	Address  string            `json:"address"` // an IP address
	Port     uint16            `json:"port"`
	Weight   uint32            `json:"weight,omitempty"`
	Locality string            `json:"locality,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// The parts of an endpoint without labels in JSON.
const (
	partAddress  = `{"address":"`
	partPort     = `","port":`
	partWeight   = `,"weight":`
	partLocality = `,"locality":"`
)

func (e *Endpoint) encode() string {
	if len(e.Labels) > 0 || !plain(e.Address) || !plain(e.Locality) {
		return metadata.JSON(e)
	}
	return string(e.append(make([]byte, 0, 128)))
}

// append writes an endpoint of plain text without labels.
func (e *Endpoint) append(b []byte) []byte {
	b = append(append(append(b, partAddress...), e.Address...), partPort...)
	b = strconv.AppendUint(b, uint64(e.Port), 10)
	if e.Weight != 0 {
		b = strconv.AppendUint(append(b, partWeight...), uint64(e.Weight), 10)
	}
	if e.Locality != "" {
		b = append(append(append(b, partLocality...), e.Locality...), '"')
	}
	return append(b, '}')
}

// read reads what append writes, and reports whether it was exactly that;
// nothing is read of anything else.
func (e *Endpoint) read(s string) bool {
	rest, ok := strings.CutPrefix(s, partAddress)
	if !ok {
		return false
	}
	*e = Endpoint{}
	e.Address, rest, _ = strings.Cut(rest, partPort)
	var n uint64
	n, rest = number(rest, 16)
	e.Port = uint16(n) //nolint:gosec // of so many bits
	if after, ok := strings.CutPrefix(rest, partWeight); ok {
		n, rest = number(after, 32)
		e.Weight = uint32(n) //nolint:gosec // of so many bits
	}
	if after, ok := strings.CutPrefix(rest, partLocality); ok {
		e.Locality, _, _ = strings.Cut(after, `"`)
	}
	var again [256]byte
	ok = plain(e.Address) && plain(e.Locality) && string(e.append(again[:0])) == s
	if !ok {
		*e = Endpoint{}
	}
	return ok
}

// number returns the number of so many bits that a text begins with, and what
// follows it.
func number(s string, bits int) (uint64, string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	n, err := strconv.ParseUint(s[:i], 10, bits)
	if err != nil {
		return 0, s
	}
	return n, s[i:]
}

// plain reports whether a text is in JSON as it is.
func plain(s string) bool { return printable(s) && !strings.ContainsAny(s, "\"\\") }
