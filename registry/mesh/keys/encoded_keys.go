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
)

// encodedKeys is a set of keys, encoded for the nodes that announce it. It is immutable.
type encodedKeys struct {
	keys  int
	nodes []*nodeKeys
}

// nodeKeys is the share of one node in the keys.
type nodeKeys struct {
	node *corev3.Node // with the keys in its label
	text string       // of the label: a JSON object, sorted by key
	keys int
}

// equal reports whether a stream that announces one also announces the other.
func (n *nodeKeys) equal(o *nodeKeys) bool {
	return n.node.GetId() == o.node.GetId() && n.text == o.text
}

func (e *encodedKeys) equal(o *encodedKeys) bool {
	return o != nil && slices.EqualFunc(e.nodes, o.nodes, (*nodeKeys).equal)
}

// encodeKeys encodes a set of keys. A set that is too large for one node is distributed by a
// hash of the keys, so that a changed key affects only one node.
func encodeKeys(set keySet, node *corev3.Node, maxBytes int) (*encodedKeys, error) {
	hosts := make(map[string]string, len(set))
	for key, address := range set {
		hosts[key.String()] = address.String()
	}
	e := &encodedKeys{keys: len(hosts)}
	shares := distribute(hosts, maxBytes)
	for i, share := range shares {
		suffix := ""
		if len(shares) > 1 {
			suffix = "-" + strconv.Itoa(i+1)
		}
		text, err := json.Marshal(share) // sorted by key
		if err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
		e.nodes = append(e.nodes,
			&nodeKeys{node: withKeys(node, suffix, string(text)), text: string(text), keys: len(share)})
	}
	return e, nil
}

// distribute distributes the hosts over shares. Their number is the smallest power of two with
// which each share has at most maxBytes.
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
				shares[i] = map[string]string{} // encoded as {} instead of null
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

// withKeys returns a copy of the node with the keys in its label. The copy is a proxyless
// client, to which istiod sends only the clusters that it names. It names none.
func withKeys(node *corev3.Node, suffix, text string) *corev3.Node {
	n := proto.CloneOf(node)
	n.Id = appendName(n.GetId(), suffix)
	labels := labelsOf(n)
	n.GetMetadata().GetFields()["GENERATOR"] = structpb.NewStringValue("grpc")
	labels[metadata.PublicationLabel] = structpb.NewStringValue(text)
	return n
}

// addMark adds the label that marks a bridge, unless the node has it.
func addMark(n *corev3.Node) {
	labels := labelsOf(n)
	if labels[metadata.MarkKey].GetStringValue() == "" {
		labels[metadata.MarkKey] = structpb.NewStringValue("keys")
	}
}

// labelsOf returns the labels of a node, to be changed in place. It adds the field if missing.
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
