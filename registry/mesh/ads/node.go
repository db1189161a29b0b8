package ads

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Identity is the identity of a node, in the form that istiod requires.
type Identity struct {
	Type      string         // sidecar, router, waypoint or ztunnel
	IP        string         // any valid IP address
	Name      string         // of the pod
	Namespace string         // must be that of the token or certificate
	Domain    string         // of the cluster; empty: cluster.local
	Cluster   string         // id of the cluster; may be empty
	Labels    map[string]any // the node metadata LABELS; values must be strings
}

// Node returns the node. The error names the field that istiod would reject.
func (i Identity) Node() (*corev3.Node, error) {
	if _, err := netip.ParseAddr(i.IP); err != nil {
		return nil, fmt.Errorf("node: ip %q: not an IP address", i.IP)
	}
	domain := cmp.Or(i.Domain, "cluster.local")
	for _, part := range [][2]string{{"type", i.Type}, {"name", i.Name}, {"namespace", i.Namespace}, {"domain", domain}} {
		switch {
		case part[1] == "":
			return nil, fmt.Errorf("node: %s: missing", part[0])
		case strings.Contains(part[1], "~"):
			return nil, fmt.Errorf("node: %s %q: must not contain ~", part[0], part[1])
		}
	}
	meta := map[string]any{"NAMESPACE": i.Namespace}
	if i.Cluster != "" {
		meta["CLUSTER_ID"] = i.Cluster
	}
	if len(i.Labels) > 0 {
		meta["LABELS"] = i.Labels
	}
	metadata, err := structpb.NewStruct(meta)
	if err != nil {
		return nil, fmt.Errorf("node: labels: %w", err)
	}
	return &corev3.Node{
		Id:             fmt.Sprintf("%s~%s~%s.%s~%s.svc.%s", i.Type, i.IP, i.Name, i.Namespace, i.Namespace, domain),
		Metadata:       metadata,
		UserAgentName:  "xds-bridge",
		ClientFeatures: []string{"envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"},
	}, nil
}
