package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/registry"
)

// NacosInstance is one instance of any format, as Nacos stores and sends it.
type NacosInstance struct {
	IP        string            `json:"ip"`
	Port      uint16            `json:"port"`
	Weight    float64           `json:"weight"`
	Healthy   bool              `json:"healthy"`
	Enabled   bool              `json:"enabled"`
	Ephemeral bool              `json:"ephemeral"`
	Cluster   string            `json:"clusterName"`
	Metadata  map[string]string `json:"metadata"`
}

// NacosConfig identifies one configuration of Nacos.
type NacosConfig struct{ Namespace, Group, ID string }

// DefaultNacosCluster is the cluster of instances without a cluster.
const DefaultNacosCluster = "DEFAULT"

// KeyNacosCluster is the attribute that holds the cluster of an instance, if it is not
// the default cluster. It is metadata where a format has no clusters.
const KeyNacosCluster = "nacos.cluster"

// ClusterAttribute returns the value of KeyNacosCluster for an instance. It is empty for
// the default cluster.
func (i NacosInstance) ClusterAttribute() string {
	if i.Cluster == DefaultNacosCluster {
		return ""
	}
	return i.Cluster
}

// IsNacosCluster reports whether a server accepts a text as the name of a cluster.
func IsNacosCluster(s string) bool { return s != "" && only(s, "-_") && len(s) <= maxNacosCluster }

// The limits that Nacos 2.3 and later check; 2.2 accepts more. Nacos refuses a whole
// batch if one instance exceeds them, so each instance is checked beforehand.
// Source: com.alibaba.nacos.common.paramcheck.ParamCheckRule.
const (
	MaxNacosMetadata = 1024 // bytes of all keys and values in total
	maxNacosService  = 512
	maxNacosGroup    = 128
	maxNacosCluster  = 64
	maxNacosAddress  = 128
	MaxNacosWeight   = 10_000
)

// ErrNacosLimit is wrapped by every error about a limit of Nacos.
var ErrNacosLimit = errors.New("exceeds a limit of Nacos")

// Key returns the key of the instance within its service: the address and, unless it is
// the default one, the cluster.
func (i NacosInstance) Key() string {
	key := net.JoinHostPort(i.IP, strconv.Itoa(int(i.Port)))
	if i.Cluster != "" && i.Cluster != DefaultNacosCluster {
		key += "#" + i.Cluster
	}
	return key
}

// String returns the instance in canonical form: JSON with the fields in a fixed order
// and the metadata sorted by key.
func (i NacosInstance) String() string {
	i.Metadata = validText(i.Metadata)
	var room [2 * MaxNacosMetadata]byte
	return string(append(AppendMap(i.appendHead(room[:0]), i.Metadata), '}'))
}

// Text is like String, with n given fields as metadata. They must be sorted by key.
func (i NacosInstance) Text(n int, field func(i int) (key, value string)) string {
	var room [2 * MaxNacosMetadata]byte
	return string(append(AppendObject(i.appendHead(room[:0]), n, field), '}'))
}

// validText returns metadata in UTF-8, never nil.
func validText(m map[string]string) map[string]string {
	bad := m == nil
	for k, v := range m {
		bad = bad || !utf8.ValidString(k) || !utf8.ValidString(v)
	}
	if !bad {
		return m
	}
	valid := make(map[string]string, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) { // sorted, because two keys may become equal
		valid[strings.ToValidUTF8(k, "\ufffd")] = strings.ToValidUTF8(m[k], "\ufffd")
	}
	return valid
}

// ParseNacosInstance parses the canonical form.
func ParseNacosInstance(s string) (NacosInstance, error) {
	if i, ok := parseCanonical(s); ok {
		return i, nil
	}
	var i NacosInstance
	if err := json.Unmarshal([]byte(s), &i); err != nil {
		return NacosInstance{}, fmt.Errorf("nacos instance %.100q: %w", s, err)
	}
	return i, nil
}

// Mark returns the owner mark of the instance. The error wraps ErrMark.
func (i NacosInstance) Mark() (Mark, error) { return ParseMark(i.Metadata[MarkKey]) }

// Health returns the health that a server reports.
func (i NacosInstance) Health() registry.Health {
	switch {
	case !i.Enabled:
		return registry.Disabled
	case i.Healthy:
		return registry.Healthy
	}
	return registry.Unhealthy
}

// Check returns why a server would refuse the instance. The error wraps
// ErrNacosLimit.
func (i NacosInstance) Check() error {
	if err := CheckNacosAddress(i.IP); err != nil {
		return err
	}
	switch {
	case i.Port == 0:
		return fmt.Errorf("%w: port 0", ErrNacosLimit)
	case i.Weight < 0 || i.Weight > MaxNacosWeight:
		return fmt.Errorf("%w: weight %v is not within 0 to %d", ErrNacosLimit, i.Weight, MaxNacosWeight)
	}
	if i.Cluster != "" && !IsNacosCluster(i.Cluster) {
		return fmt.Errorf("%w: cluster %.100q", ErrNacosLimit, i.Cluster)
	}
	if n := SizeOf(i.Metadata); n > MaxNacosMetadata {
		return fmt.Errorf("%w: metadata of %d bytes, at most %d", ErrNacosLimit, n, MaxNacosMetadata)
	}
	return nil
}

// CheckNacosAddress returns why a server would refuse the address of an instance, which
// must be an IP address or a host name. The error wraps ErrNacosLimit.
func CheckNacosAddress(host string) error {
	if err := CheckAddress(host, 1); err != nil {
		return fmt.Errorf("%w: ip %.100q is neither an IP address nor a host name", ErrNacosLimit, host)
	}
	if len(host) > maxNacosAddress {
		return fmt.Errorf("%w: ip of %d characters, at most %d", ErrNacosLimit, len(host), maxNacosAddress)
	}
	return nil
}

// CheckNacosService returns why a server would refuse a service. The error wraps
// ErrNacosLimit.
func CheckNacosService(namespace, group, name string) error {
	switch {
	case name == "" || len(name) > maxNacosService || strings.Contains(name, "@@") || !printable(name):
		return fmt.Errorf("%w: service name %.100q", ErrNacosLimit, name)
	case group == "" || len(group) > maxNacosGroup || !only(group, "-_:."):
		return fmt.Errorf("%w: group %.100q", ErrNacosLimit, group)
	case !only(namespace, "-_") || len(namespace) > maxNacosCluster:
		return fmt.Errorf("%w: namespace %.100q", ErrNacosLimit, namespace)
	}
	return nil
}

// printable reports whether s has only printable ASCII characters and no spaces, as
// Nacos requires of a service name.
func printable(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}

// only reports whether s has only ASCII letters, digits and the given signs.
func only(s, signs string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune(signs, r)
	})
}

// SizeOf returns the total size of all keys and values in bytes, as Nacos counts it.
func SizeOf(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// There may be a million instances, so the following functions write and parse them
// without reflection. A parsed instance is written again and compared. If the texts
// differ, encoding/json parses it.

// appendHead appends an instance up to its metadata, like encoding/json.
func (i NacosInstance) appendHead(b []byte) []byte {
	if i.Cluster == "" {
		i.Cluster = DefaultNacosCluster
	}
	b = AppendText(append(b, `{"ip":`...), i.IP)
	b = strconv.AppendUint(append(b, `,"port":`...), uint64(i.Port), 10)
	b = appendNumber(append(b, `,"weight":`...), i.Weight)
	b = strconv.AppendBool(append(b, `,"healthy":`...), i.Healthy)
	b = strconv.AppendBool(append(b, `,"enabled":`...), i.Enabled)
	b = strconv.AppendBool(append(b, `,"ephemeral":`...), i.Ephemeral)
	b = AppendText(append(b, `,"clusterName":`...), i.Cluster)
	return append(b, `,"metadata":`...)
}

func appendNumber(b []byte, f float64) []byte {
	if n := int64(f); n > 0 && n <= MaxNacosWeight && float64(n) == f {
		return strconv.AppendInt(b, n, 10)
	}
	return append(b, JSON(f)...)
}

// parseCanonical parses the result of String. It returns false for any other text.
func parseCanonical(s string) (NacosInstance, bool) {
	rest := s
	next := func(upTo string) string {
		var part string
		part, rest, _ = strings.Cut(rest, upTo)
		return part
	}
	next(`{"ip":"`)
	var in NacosInstance
	in.IP = next(`","port":`)
	port, _ := strconv.ParseUint(next(`,"weight":`), 10, 16) // an invalid number differs below
	weight, _ := strconv.Atoi(next(`,"healthy":`))
	in.Port, in.Weight = uint16(port), float64(weight)
	in.Healthy = next(`,"enabled":`) == "true"
	in.Enabled = next(`,"ephemeral":`) == "true"
	in.Ephemeral = next(`,"clusterName":"`) == "true"
	in.Cluster = next(`","metadata":{`)
	rest = strings.TrimSuffix(rest, `"}}`)
	in.Metadata = make(map[string]string, strings.Count(rest, `","`)+1)
	for pair := range strings.SplitSeq(strings.TrimPrefix(rest, `"`), `","`) {
		if k, v, ok := strings.Cut(pair, `":"`); ok {
			in.Metadata[k] = v
		}
	}
	var again [MaxNacosMetadata]byte
	return in, string(append(AppendMap(in.appendHead(again[:0]), in.Metadata), '}')) == s
}
