package keys

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// encodedKeys is a set of keys, encoded for the nodes that announce it. It is never
// written again.
type encodedKeys struct {
	keys  int
	nodes []*nodeKeys
}

// nodeKeys is the keys of one node.
type nodeKeys struct {
	node *corev3.Node
	text string // the label: a JSON object, its keys in order
	keys int
}

// equal reports whether a stream that announces one part announces the other.
func (p *nodeKeys) equal(o *nodeKeys) bool {
	return p.node.GetId() == o.node.GetId() && p.text == o.text
}

func (p *encodedKeys) equal(o *encodedKeys) bool {
	return o != nil && slices.EqualFunc(p.nodes, o.nodes, (*nodeKeys).equal)
}

// encodeKeys returns the publication of a set. A set that is too large for one
// node is distributed by a hash of the keys, so that a change concerns one node.
func encodeKeys(set map[naming.ServiceKey]naming.HostAddress, node *corev3.Node, maxBytes int) (*encodedKeys, error) {
	hosts := make(map[string]string, len(set))
	for key, address := range set {
		hosts[key.String()] = address.String()
	}
	p := &encodedKeys{keys: len(hosts)}
	shares := distribute(hosts, maxBytes)
	for i, share := range shares {
		suffix := ""
		if len(shares) > 1 {
			suffix = "-" + strconv.Itoa(i+1)
		}
		text, err := json.Marshal(share) // in order of keys
		if err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
		p.nodes = append(p.nodes, &nodeKeys{node: withKeys(node, suffix, string(text)), text: string(text), keys: len(share)})
	}
	return p, nil
}

// distribute returns the hosts in as few shares as fit, by powers of two.
func distribute(hosts map[string]string, maxBytes int) []map[string]string {
	for n := 1; ; n *= 2 {
		shares, sizes := make([]map[string]string, n), make([]int, n)
		largest := 0
		for key, host := range hosts {
			at := hash(key) % uint32(n)
			if shares[at] == nil {
				shares[at] = make(map[string]string, len(hosts)/n)
			}
			shares[at][key] = host
			sizes[at] += len(key) + len(host) + len(`"":"",`)
			largest = max(largest, sizes[at])
		}
		if largest+len(`{}`) > maxBytes && n < len(hosts) {
			continue
		}
		for i := range shares {
			if shares[i] == nil {
				shares[i] = map[string]string{} // is {} and not null
			}
		}
		return shares
	}
}

func hash(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum32()
}

// withKeys returns the node with its keys. As a proxyless client it is sent only the
// clusters that it names, which are none.
func withKeys(node *corev3.Node, suffix, text string) *corev3.Node {
	n := proto.CloneOf(node)
	n.Id = appendName(n.GetId(), suffix)
	labels := labelsOf(n)
	n.GetMetadata().GetFields()["GENERATOR"] = structpb.NewStringValue("grpc")
	labels[metadata.PublicationLabel] = structpb.NewStringValue(text)
	return n
}

// addMark adds the label of a bridge to a node without one.
func addMark(n *corev3.Node) {
	labels := labelsOf(n)
	if labels[metadata.MarkKey].GetStringValue() == "" {
		labels[metadata.MarkKey] = structpb.NewStringValue("keys")
	}
}

// labelsOf returns the labels of a node, and adds them if there are none.
func labelsOf(n *corev3.Node) map[string]*structpb.Value {
	if n.GetMetadata().GetFields() == nil {
		n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	}
	fields := n.GetMetadata().GetFields()
	if fields["LABELS"].GetStructValue().GetFields() == nil {
		fields["LABELS"] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{}})
	}
	return fields["LABELS"].GetStructValue().GetFields()
}

// appendName appends a suffix to the name in a node's id
// (type~ip~name.namespace~domain).
func appendName(id, suffix string) string {
	parts := strings.Split(id, "~")
	if len(parts) != 4 {
		return id + suffix
	}
	name, namespace := parts[2], ""
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		name, namespace = name[:at], name[at:]
	}
	parts[2] = name + suffix + namespace
	return strings.Join(parts, "~")
}
