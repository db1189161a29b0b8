package dubbo

import (
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

// formatURL writes a provider's URL with its parameters in their order. A
// value that would be taken for syntax is percent-encoded, which Java shows
// its consumers as it is written and dubbo-go decodes.
func formatURL(p provider, params []param) string {
	var b strings.Builder
	b.Grow(len(p.protocol) + len(p.address) + len(p.path) + sizeOf(params) + 2*len(params) + 16)
	b.WriteString(p.protocol)
	b.WriteString("://")
	b.WriteString(p.address)
	b.WriteByte('/')
	b.WriteString(p.path)
	sep := byte('?')
	for _, q := range params {
		b.WriteByte(sep)
		escapeParam(&b, q.key)
		b.WriteByte('=')
		escapeParam(&b, q.value)
		sep = '&'
	}
	return b.String()
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
		params = append(params, param{unescapeParam(k), unescapeParam(v)})
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

// escapeParam percent-encodes what would break a URL apart, and what cannot
// be seen.
func escapeParam(b *strings.Builder, s string) {
	if plain(s) {
		b.WriteString(s)
		return
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n <= 1 || !unicode.IsPrint(r) || r == ' ' || strings.ContainsRune(`%&=?#;"`, r) {
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(b, "%%%02X", c)
			}
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
}

// plain reports whether escapeParam has nothing to do.
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

// unescapeParam undoes escapeParam. Java writes values as they are, so what is
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
	const digits = "0123456789ABCDEF"
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
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
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

type param struct{ key, value string }

func (p param) compare(o param) int { return strings.Compare(p.key, o.key) }

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

// fit adds to must as many of may, in their order, as the limit allows, and
// returns all sorted by key with the keys that found no room or that JSON
// could not hold.
func fit(must, may []param, limit int) (all []param, dropped []string) {
	size := 0
	for _, p := range must {
		size += len(p.key) + len(p.value)
	}
	all = must
	for _, p := range may {
		n := len(p.key) + len(p.value)
		if p.value == "" {
			continue
		}
		if size+n > limit || !utf8.ValidString(p.key) || !utf8.ValidString(p.value) {
			dropped = append(dropped, p.key)
			continue
		}
		size += n
		all = append(all, p)
	}
	slices.SortFunc(all, param.compare)
	return all, dropped
}

func sizeOf(params []param) (n int) {
	for _, p := range params {
		n += len(p.key) + len(p.value)
	}
	return n
}

// canonicalPath returns a provider's path without the slashes that dubbo-go
// puts before it.
func canonicalPath(s string) string { return strings.TrimLeft(s, "/") }
