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
	"github.com/xds-bridge/xds-bridge/registry"
)

// appendURL appends a provider's URL, and returns the offset of its stamp. Values with
// characters of the URL syntax are percent-encoded. dubbo-go decodes them, and Java
// passes them to its consumers encoded.
func appendURL(b []byte, p *provider, params []param) (all []byte, stamp int) {
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

// parsedURL is a provider URL.
type parsedURL struct {
	protocol string
	host     string
	port     uint16
	path     string
	query    string
	params   []param // of the query; of several params with one key the last counts
}

// parseURL parses a provider URL like Java Dubbo. The host may be an IPv6 address with or
// without brackets. A user name or password before it is ignored.
func parseURL(s string) (parsedURL, error) {
	u, err := splitURL(s)
	if err == nil {
		u.params, err = parseQuery(u.query)
		u.params = resolveDefaults(u.params)
	}
	return u, err
}

// splitURL is like parseURL, but does not parse the query.
func splitURL(s string) (parsedURL, error) {
	protocol, rest, ok := strings.Cut(s, "://")
	if !ok {
		return parsedURL{}, fmt.Errorf("%.80q is not a URL", s)
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

var errReserved = errors.New("is a path that Dubbo itself uses")

// checkInterface refuses service keys that consumers cannot request, and interfaces whose
// path Dubbo itself uses.
func checkInterface(i registry.Interface) error {
	if err := metadata.KeyOf(i).Check(); err != nil {
		return err
	}
	switch i.Name {
	case "config", "mapping", "metadata":
		return fmt.Errorf("interface %q %w", i.Name, errReserved)
	}
	return nil
}

func checkProtocol(s string) error { return metadata.CheckProtocol(s) }

func checkAddress(host string, port uint16) error { return metadata.CheckAddress(host, port) }

// hostPort joins a host and a port, with an IPv6 host in brackets.
func hostPort(host string, port uint16) string { return string(appendHostPort(nil, host, port)) }

func appendHostPort(b []byte, host string, port uint16) []byte {
	if strings.IndexByte(host, ':') >= 0 {
		b = append(append(append(b, '['), host...), ']')
	} else {
		b = append(b, host...)
	}
	return strconv.AppendUint(append(b, ':'), uint64(port), 10)
}

// maxParams bounds the cost of one hostile entry.
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

// defaultPrefix begins the parameters that Dubbo up to 2.6 writes for provider-wide
// settings, such as default.version.
const defaultPrefix = "default."

// resolveDefaults removes defaultPrefix from the names of parameters, like consumers of
// Dubbo. Such a parameter counts only if the parameter without the prefix is empty.
func resolveDefaults(params []param) []param {
	isDefault := func(p param) bool { return strings.HasPrefix(p.key, defaultPrefix) }
	if !slices.ContainsFunc(params, isDefault) {
		return params
	}
	set := make(map[string]bool, len(params))
	for _, p := range params {
		set[p.key] = set[p.key] || p.value != ""
	}
	out := make([]param, 0, len(params))
	for _, p := range params {
		name, isDefault := strings.CutPrefix(p.key, defaultPrefix)
		if set[name] != isDefault { // an empty parameter would hide the default
			p.key = name
			out = append(out, p)
		}
	}
	return out
}

// paramsOf yields the parameters of a query without unescaping them.
func paramsOf(s string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for part := range strings.SplitSeq(s, "&") {
			if k, v, _ := strings.Cut(part, "="); k != "" && !yield(k, v) {
				return
			}
		}
	}
}

// appendEscaped appends a text with percent-encoded characters of the URL syntax and
// invisible characters.
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

// plain reports whether appendEscaped does not change a text.
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

// unescapeParam undoes appendEscaped. Java does not escape values, so a text with an
// invalid escape is returned unchanged.
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

// The parameters of a provider that the codec uses. Parameters that begin with mesh, and
// endPointWeight, are those of dubbo-go's xDS registry.
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

// A rank orders parameters by importance: if the limit leaves no room for all, the last
// ones are left out. In a draft the rank selects the value that an endpoint fills in.
type rank uint8

// The ranks. Parameters of a rank before rankApplication are never left out.
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
	plain      bool // escaping does not change key and value, so they are valid UTF-8
}

func compareKeys(p, q param) int { return strings.Compare(p.key, q.key) }

// isReserved reports whether the codec writes a parameter from a field of the model.
func isReserved(key string) bool {
	switch key {
	case paramCategory, paramDisabled, paramEnabled, paramGroup, paramInterface, paramPath, paramProtocol, paramSide,
		paramVersion, paramWeight, paramMeshWeight, paramMeshLocality, paramInstance, metadata.MarkKey:
		return true
	}
	return false
}

// isVolatile reports whether a parameter changes with each start of a provider, or is of
// no use to consumers. Such parameters are neither read nor written, so that equal
// providers have equal bytes. The timestamp in ZooKeeper is ours, see metadata.Stamp.
func isVolatile(key string) bool {
	switch key {
	case metadata.StampKey, "remote.timestamp", "pid", "bind.ip", "bind.port", "qos.enable", "nacos.category":
		return true
	}
	return false
}

// fit returns the parameters that a limit of bytes allows, with the most important rank
// first to fit. It also returns the keys of the others, including those that are not
// UTF-8. It fails if the required parameters exceed the limit.
func fit(params []param, limit int) (kept []param, dropped []string, err error) {
	size, required, valid := 0, 0, true
	for i := range params {
		p := &params[i]
		size += p.size()
		if p.required() {
			required += p.size()
		} else {
			valid = valid && p.valid()
		}
	}
	if required > limit {
		return nil, nil, fmt.Errorf("metadata of %d bytes, at most %d", required, limit)
	}
	if size <= limit && valid {
		return params, nil, nil
	}
	byRank := slices.SortedStableFunc(slices.Values(params), func(p, q param) int { return cmp.Compare(p.rank, q.rank) })
	size = 0
	for _, p := range byRank {
		if !p.required() && (size+p.size() > limit || !p.valid()) {
			dropped = append(dropped, p.key)
			continue
		}
		size += p.size()
		kept = append(kept, p)
	}
	slices.SortFunc(kept, compareKeys)
	return kept, dropped, nil
}

func (p *param) required() bool { return p.rank < rankApplication }

func (p *param) size() int { return len(p.key) + len(p.value) }

func (p *param) valid() bool { return p.plain || utf8.ValidString(p.key) && utf8.ValidString(p.value) }

// fieldsOf returns parameters as fields of JSON.
func fieldsOf(params []param) (n int, field func(i int) (key, value string)) {
	return len(params), func(i int) (string, string) { return params[i].key, params[i].value }
}

// canonicalPath returns a provider's path without the leading slashes of dubbo-go.
func canonicalPath(s string) string { return strings.TrimLeft(s, "/") }
