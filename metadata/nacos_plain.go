package metadata

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Nearly all instances hold plain text and whole weights. There may be a
// million of them, so these are written and read without reflection. What is
// read so is written again and compared: anything else, however close, is left
// to encoding/json.

// The parts of a plain instance in JSON.
const (
	nacosIP        = `{"ip":"`
	nacosPort      = `","port":`
	nacosWeight    = `,"weight":`
	nacosHealthy   = `,"healthy":`
	nacosEnabled   = `,"enabled":`
	nacosEphemeral = `,"ephemeral":`
	nacosCluster   = `,"clusterName":"`
	nacosMetadata  = `","metadata":{`
)

// plain reports whether append can write the instance.
func (i NacosInstance) plain() bool {
	for k, v := range i.Metadata {
		if !plainText(k) || !plainText(v) {
			return false
		}
	}
	whole := i.Weight >= 0 && i.Weight <= MaxNacosWeight && i.Weight == float64(int(i.Weight)) && !math.Signbit(i.Weight)
	return whole && plainText(i.IP) && plainText(i.Cluster)
}

// plainText reports whether a text is in JSON as it is.
func plainText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// append writes a plain instance as encoding/json does.
func (i NacosInstance) append(b []byte) []byte {
	b = append(append(append(b, nacosIP...), i.IP...), nacosPort...)
	b = strconv.AppendUint(b, uint64(i.Port), 10)
	b = strconv.AppendInt(append(b, nacosWeight...), int64(i.Weight), 10)
	b = strconv.AppendBool(append(b, nacosHealthy...), i.Healthy)
	b = strconv.AppendBool(append(b, nacosEnabled...), i.Enabled)
	b = strconv.AppendBool(append(b, nacosEphemeral...), i.Ephemeral)
	b = append(append(append(b, nacosCluster...), i.Cluster...), nacosMetadata...)
	var room [32]string
	keys := slices.AppendSeq(room[:0], maps.Keys(i.Metadata))
	slices.Sort(keys)
	for n, k := range keys {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), k...), `":"`...)
		b = append(append(b, i.Metadata[k]...), '"')
	}
	return append(b, "}}"...)
}

// readPlain reads what append writes, and reports whether it was exactly that.
func readPlain(s string) (NacosInstance, bool) {
	rest := s
	next := func(upTo string) string {
		var part string
		part, rest, _ = strings.Cut(rest, upTo)
		return part
	}
	next(nacosIP)
	var in NacosInstance
	in.IP = next(nacosPort)
	port, _ := strconv.ParseUint(next(nacosWeight), 10, 16) // what is none differs below
	weight, _ := strconv.Atoi(next(nacosHealthy))
	in.Port, in.Weight = uint16(port), float64(weight)
	in.Healthy = next(nacosEnabled) == "true"
	in.Enabled = next(nacosEphemeral) == "true"
	in.Ephemeral = next(nacosCluster) == "true"
	in.Cluster = next(nacosMetadata)
	rest = strings.TrimSuffix(rest, `"}}`)
	in.Metadata = make(map[string]string, strings.Count(rest, `","`)+1)
	for pair := range strings.SplitSeq(strings.TrimPrefix(rest, `"`), `","`) {
		if k, v, ok := strings.Cut(pair, `":"`); ok {
			in.Metadata[k] = v
		}
	}
	var again [MaxNacosMetadata]byte
	return in, in.plain() && string(in.append(again[:0])) == s
}
