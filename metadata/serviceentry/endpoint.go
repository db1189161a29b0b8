package serviceentry

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// Endpoint is one endpoint of a ServiceEntry. In JSON it is the value of its entry. There
// may be hundreds of thousands of endpoints, so they are encoded and parsed without
// reflection.
type Endpoint struct {
	Address  string            `json:"address"` // an IP address or a host name
	Port     uint16            `json:"port"`
	Weight   uint32            `json:"weight,omitempty"`
	Locality string            `json:"locality,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// IsName reports whether an address is a host name. Proxies must resolve it, and so the
// resolution of its service is DNS.
func IsName(address string) bool {
	_, err := netip.ParseAddr(address)
	return err != nil
}

func (e *Endpoint) encode() string { return string(e.append(make([]byte, 0, 128))) }

// append appends an endpoint like encoding/json.
func (e *Endpoint) append(b []byte) []byte {
	b = metadata.AppendText(append(b, `{"address":`...), e.Address)
	b = strconv.AppendUint(append(b, `,"port":`...), uint64(e.Port), 10)
	if e.Weight != 0 {
		b = strconv.AppendUint(append(b, `,"weight":`...), uint64(e.Weight), 10)
	}
	if e.Locality != "" {
		b = metadata.AppendText(append(b, `,"locality":`...), e.Locality)
	}
	if len(e.Labels) > 0 {
		b = metadata.AppendMap(append(b, `,"labels":`...), e.Labels)
	}
	return append(b, '}')
}

// parseCanonical parses an endpoint. It reports whether append returns exactly this text,
// which proves that the endpoint was parsed correctly.
func (e *Endpoint) parseCanonical(s string) bool {
	rest, ok := strings.CutPrefix(s, `{"address":"`)
	if !ok {
		return false
	}
	*e = Endpoint{}
	e.Address, rest, _ = strings.Cut(rest, `","port":`)
	var n uint64
	n, rest = leadingNumber(rest, 16)
	e.Port = uint16(n) //nolint:gosec // it has at most 16 bits
	if after, ok := strings.CutPrefix(rest, `,"weight":`); ok {
		n, rest = leadingNumber(after, 32)
		e.Weight = uint32(n) //nolint:gosec // it has at most 32 bits
	}
	if after, ok := strings.CutPrefix(rest, `,"locality":"`); ok {
		e.Locality, rest, _ = strings.Cut(after, `"`)
	}
	if after, ok := strings.CutPrefix(rest, `,"labels":{"`); ok {
		e.Labels = make(map[string]string)
		for label := range strings.SplitSeq(strings.TrimSuffix(after, `"}}`), `","`) {
			key, value, _ := strings.Cut(label, `":"`)
			e.Labels[key] = value
		}
	}
	var again [512]byte
	if string(e.append(again[:0])) == s {
		return true
	}
	*e = Endpoint{}
	return false
}

// leadingNumber returns the number at the beginning of a text, and the text after it.
func leadingNumber(s string, bits int) (uint64, string) {
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
