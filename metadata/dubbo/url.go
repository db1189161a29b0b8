package dubbo

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// appendURL writes a provider's URL with its parameters in their order. A
// value that would be taken for syntax is percent-encoded, which Java shows
// its consumers as it is written and dubbo-go decodes.
// It returns where the value of the stamp is.
func appendURL(b []byte, p *provider, params []param) (url []byte, stamp int) {
	b = append(append(append(b, p.url...), '/'), p.path()...)
	sep := byte('?')
	for _, q := range params {
		b = append(b, sep)
		if q.plain {
			b = append(append(append(b, q.key...), '='), q.value...)
		} else {
			b = appendEscaped(append(appendEscaped(b, q.key), '='), q.value)
		}
		if q.key == metadata.StampKey {
			stamp = len(b) - len(q.value)
		}
		sep = '&'
	}
	return b, stamp
}

// parsedURL is a provider URL as far as it could be read.
type parsedURL struct {
	protocol string
	host     string
	port     uint16
	path     string
	query    string
	params   []param // of the query; of several under one key the last counts
}

// parseURL reads a provider URL the way Java Dubbo does: nothing but the
// syntax is decoded twice, a host may be an IPv6 address with or without
// brackets, and a user name or password before the host is dropped.
func parseURL(s string) (parsedURL, error) {
	u, err := splitURL(s)
	if err == nil {
		u.params, err = parseQuery(u.query)
	}
	return u, err
}

// splitURL is parseURL up to the query.
func splitURL(s string) (parsedURL, error) {
	protocol, rest, ok := strings.Cut(s, "://")
	if !ok {
		return parsedURL{}, fmt.Errorf("%.80q is no URL", s)
	}
	if err := checkProtocol(protocol); err != nil {
		return parsedURL{}, err
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	host, port, err := splitAuthority(authority)
	if err != nil {
		return parsedURL{}, err
	}
	return parsedURL{protocol: protocol, host: host, port: port, path: path, query: query}, nil
}

func splitAuthority(s string) (string, uint16, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", 0, fmt.Errorf("%.80q has no port", s)
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%.80q: port %.20q is not within 1 to 65535", s, s[i+1:])
	}
	host := strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]")
	if err := checkAddress(host, uint16(port)); err != nil {
		return "", 0, err
	}
	return host, uint16(port), nil
}

// maxParams bounds what one hostile entry can cost.
const maxParams = 512

func parseQuery(s string) ([]param, error) {
	n := strings.Count(s, "&") + 1
	if n > maxParams {
		return nil, fmt.Errorf("more than %d parameters", maxParams)
	}
	params := make([]param, 0, n)
	for k, v := range paramsOf(s) {
		params = append(params, param{key: unescapeParam(k), value: unescapeParam(v)})
	}
	return params, nil
}

// paramsOf yields the parameters of a query as they are written.
func paramsOf(s string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for part := range strings.SplitSeq(s, "&") {
			if k, v, _ := strings.Cut(part, "="); k != "" && !yield(k, v) {
				return
			}
		}
	}
}

// appendEscaped percent-encodes what would break a URL apart, and what cannot
// be seen.
func appendEscaped(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n <= 1 || !unicode.IsPrint(r) || r == ' ' || strings.ContainsRune(`%&=?#;"`, r) {
			for _, c := range []byte(s[i : i+n]) {
				b = append(b, '%', upperHex[c>>4], upperHex[c&15])
			}
		} else {
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return b
}

const upperHex = "0123456789ABCDEF"

// plain reports whether appendEscaped has nothing to do.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; c {
		case '%', '&', '=', '?', '#', ';', '"':
			return false
		default:
			if c <= ' ' || c >= 0x7f {
				return false
			}
		}
	}
	return true
}

// unescapeParam undoes appendEscaped. Java writes values as they are, so what is
// no escape stands for itself.
func unescapeParam(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	u, err := url.PathUnescape(s)
	if err != nil {
		return s
	}
	return u
}

// escapeNode encodes a text as java.net.URLEncoder does, which is how Dubbo
// names its nodes.
func escapeNode(s string) string {
	escaped := 0
	for i := range len(s) {
		if !nodeByte(s[i]) {
			escaped++
		}
	}
	if escaped == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*escaped)
	for i := range len(s) {
		switch c := s[i]; {
		case nodeByte(c):
			b.WriteByte(c)
		case c == ' ':
			b.WriteByte('+')
		default:
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

// nodeByte reports whether URLEncoder leaves a byte as it is.
func nodeByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_' || c == '*'
}

var errNode = errors.New("is not a name that Dubbo writes")

// unescapeNode undoes escapeNode; the error reports a name that it would not
// have written so.
func unescapeNode(s string) (string, error) {
	var b strings.Builder
	b.Grow(len(s))
	canonical := true
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case nodeByte(c):
		case c == '+':
			c = ' '
		case c == '%':
			var ok bool
			if c, ok = unescapeByte(s[i+1:]); !ok {
				return "", fmt.Errorf("%.80q %w", s, errNode)
			}
			canonical = canonical && c != ' ' && !nodeByte(c) && s[i+1] < 'a' && s[i+2] < 'a'
			i += 2
		default:
			canonical = false
		}
		b.WriteByte(c)
	}
	if !canonical {
		return b.String(), fmt.Errorf("%.80q %w", s, errNode)
	}
	return b.String(), nil
}

// unescapeByte returns the byte that the two digits stand for with which s
// begins.
func unescapeByte(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	high, low := hexDigit(s[0]), hexDigit(s[1])
	return high<<4 | low, high|low < 16
}

// hexDigit returns what a digit stands for, 16 for what is none.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 16
}

// The parameters of a provider that have a meaning here. Those that begin
// with mesh, and endPointWeight, are the ones dubbo-go's xDS registry knows.
const (
	paramApplication = "application"
	paramCategory    = "category"
	paramDisabled    = "disabled"
	paramEnabled     = "enabled"
	paramGroup       = "group"
	paramInterface   = "interface"
	paramPath        = "path"
	paramProtocol    = "protocol"
	paramRelease     = "release"
	paramSide        = "side"
	paramTag         = "dubbo.tag"
	paramVersion     = "version"
	paramWeight      = "weight"

	paramMeshCluster  = "meshClusterID"
	paramMeshHost     = "meshHostAddr"
	paramMeshSubset   = "meshSubset"
	paramMeshWeight   = "endPointWeight"
	paramMeshLocality = "meshLocality"
	paramInstance     = "instanceId"
	paramMeshTLS      = "tlsMode"
)

// A rank says which parameters find room first, and which value of an endpoint
// a parameter has.
type rank uint8

// The ranks. Those before rankApplication always find room.
const (
	rankOwn rank = iota
	rankMark
	rankWeight
	rankPath
	rankProtocol
	rankEndpoints
	rankRevision

	rankApplication
	rankMeshWeight
	rankSubset
	rankLocality
	rankHost
	rankCluster
	rankInstance
	rankTag
	rankUsers
)

type param struct {
	key, value string
	rank       rank
	plain      bool // no URL escapes any of it
}

func compareKeys(p, q param) int { return strings.Compare(p.key, q.key) }

// reserved reports whether the codec itself writes a parameter, from fields
// of the model.
func reserved(key string) bool {
	switch key {
	case paramCategory, paramDisabled, paramEnabled, paramGroup, paramInterface, paramPath, paramProtocol, paramSide, paramVersion,
		paramWeight, paramMeshWeight, paramMeshLocality, paramInstance, metadata.MarkKey:
		return true
	}
	return false
}

// volatile reports whether a parameter differs from start to start of one
// provider or says nothing to a consumer. Such are neither read nor written:
// equal providers have equal bytes. The timestamp that is written in ZooKeeper
// is none of a provider's, see metadata.Stamp.
func volatile(key string) bool {
	switch key {
	case metadata.StampKey, "remote.timestamp", "pid", "bind.ip", "bind.port", "qos.enable", "nacos.category":
		return true
	}
	return false
}

// fit returns as many parameters as a limit of bytes allows, by their rank, and
// the keys of those that find no room or that JSON cannot hold. It fails where
// there is no room for what is always written.
func fit(params []param, limit int) (kept []param, dropped []string, err error) {
	size, must, valid := 0, 0, true
	for i := range params {
		p := &params[i]
		size += p.size()
		if p.must() {
			must += p.size()
		} else {
			valid = valid && p.valid()
		}
	}
	if must > limit {
		return nil, nil, fmt.Errorf("metadata of %d bytes, at most %d", must, limit)
	}
	if size <= limit && valid {
		return params, nil, nil
	}
	byRank := slices.SortedStableFunc(slices.Values(params), func(p, q param) int { return cmp.Compare(p.rank, q.rank) })
	size = 0
	for _, p := range byRank {
		if !p.must() && (size+p.size() > limit || !p.valid()) {
			dropped = append(dropped, p.key)
			continue
		}
		size += p.size()
		kept = append(kept, p)
	}
	slices.SortFunc(kept, compareKeys)
	return kept, dropped, nil
}

func (p *param) must() bool { return p.rank < rankApplication }

func (p *param) size() int { return len(p.key) + len(p.value) }

func (p *param) valid() bool { return p.plain || utf8.ValidString(p.key) && utf8.ValidString(p.value) }

// fieldsOf returns parameters as fields of JSON.
func fieldsOf(params []param) (n int, field func(i int) (key, value string)) {
	return len(params), func(i int) (string, string) { return params[i].key, params[i].value }
}

// canonicalPath returns a provider's path without the slashes that dubbo-go
// puts before it.
func canonicalPath(s string) string { return strings.TrimLeft(s, "/") }
