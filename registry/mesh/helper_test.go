package mesh_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (make golden rewrites it)\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

// joinText renders a join for the golden files.
func joinText(j mesh.Joined) string {
	var b strings.Builder
	for _, s := range j.Services {
		b.WriteString(line(s))
	}
	for _, k := range slices.Sorted(maps.Keys(j.Skipped)) {
		fmt.Fprintf(&b, "skipped %s: %s\n", k, j.Skipped[k])
	}
	for _, k := range slices.Sorted(maps.Keys(j.Unknown)) {
		fmt.Fprintf(&b, "unknown %s: %v\n", k, j.Unknown[k])
	}
	for _, k := range slices.Sorted(maps.Keys(j.EDSNames)) {
		fmt.Fprintf(&b, "needed %s\n", k)
	}
	return b.String()
}

func line(s *registry.Service) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s namespace=%s application=%s %v %v\n", s.Name, s.Namespace, s.Application, s.Interfaces, map[string]string(s.Attributes))
	for _, e := range s.Endpoints {
		fmt.Fprintf(&b, "  %s %s weight=%d zone=%s instance=%s %v\n",
			e.Address(), e.Health, e.Weight, e.Zone, e.Instance, map[string]string(e.Attributes))
	}
	return b.String()
}

// capture decodes what a real istiod answered.
func capture(t testing.TB, r *mesh.Decoder, dir string) mesh.JoinInput {
	t.Helper()
	v := emptyInput()
	for name, raw := range readCapture(t, dir, "cds") {
		c := &clusterv3.Cluster{}
		unmarshal(t, raw, c)
		v.Clusters[name] = decodeCluster(t, r, c)
	}
	for name, raw := range readCapture(t, dir, "eds") {
		a := &endpointv3.ClusterLoadAssignment{}
		unmarshal(t, raw, a)
		v.Assignments[name] = decodeAssignment(t, r, a)
	}
	return v
}

func readCapture(t testing.TB, dir, kind string) map[string]json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "istiod", dir, kind+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func unmarshal(t testing.TB, raw []byte, m proto.Message) {
	t.Helper()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, m); err != nil {
		t.Fatal(err)
	}
}

func decodeCluster(t testing.TB, r *mesh.Decoder, m *clusterv3.Cluster) *mesh.Cluster {
	t.Helper()
	name, c, err := r.DecodeCluster(encode(t, m))
	if err != nil || name != m.GetName() {
		t.Fatalf("decoded %q, %v, want the name of the message", name, err)
	}
	return c
}

func decodeAssignment(t testing.TB, r *mesh.Decoder, m *endpointv3.ClusterLoadAssignment) *mesh.Assignment {
	t.Helper()
	name, a, err := r.DecodeAssignment(encode(t, m))
	if err != nil || name != m.GetClusterName() {
		t.Fatalf("decoded %q, %v, want the name of the message", name, err)
	}
	return a
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func emptyInput() mesh.JoinInput {
	return mesh.JoinInput{
		Clusters: map[string]*mesh.Cluster{}, Assignments: map[string]*mesh.Assignment{},
		Rejected: map[string]error{}, Unknown: map[string]error{},
	}
}

func plain(t testing.TB) *mesh.Decoder {
	t.Helper()
	return mesh.NewDecoder(nil, mesh.AcceptMutualTLS)
}

// mapping says which keys live where: "providers:api.Greeter::" at "a.b:1".
func mapping(t testing.TB, pairs ...string) metadata.Mapping {
	t.Helper()
	var claims []metadata.Claim
	for i := 0; i < len(pairs); i += 2 {
		key, err := naming.ParseServiceKey(pairs[i])
		if err != nil {
			t.Fatal(err)
		}
		claims = append(claims, metadata.Claim{Key: key, Address: address(t, pairs[i+1]), Client: strconv.Itoa(i)})
	}
	return metadata.NewMapping(slices.Values(claims))
}

// keyAt returns the mapping of a small mesh, in which one endpoint of a.b bears a key.
func keyAt(t testing.TB, host string) metadata.Mapping {
	t.Helper()
	others := slices.DeleteFunc([]string{"10.0.0.1", "10.0.0.2"}, func(o string) bool { return o == host })
	claims := []metadata.Claim{{
		Key: naming.ServiceKey{Category: naming.Providers, Interface: "I"}, Address: address(t, "a.b:1"), Client: "1",
		Without: metadata.HostsOf(slices.Values(others)),
	}}
	return metadata.NewMapping(slices.Values(claims))
}

func address(t testing.TB, s string) naming.HostAddress {
	t.Helper()
	a, err := naming.ParseHostAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pattern(t testing.TB, s string) naming.Pattern {
	t.Helper()
	p, err := naming.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func everything(t testing.TB) mesh.Naming {
	t.Helper()
	return mesh.Naming{Plain: []naming.Pattern{pattern(t, "*")}}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// What istiod sends.

func edsCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{},
	}
}

func load(name string, endpoints ...*endpointv3.LbEndpoint) *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	if len(endpoints) > 0 {
		a.Endpoints = []*endpointv3.LocalityLbEndpoints{{LbEndpoints: endpoints}}
	}
	return a
}

func socket(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func at(a *corev3.Address, change ...func(*endpointv3.LbEndpoint)) *endpointv3.LbEndpoint {
	e := &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: a}},
		LoadBalancingWeight: wrapperspb.UInt32(1),
	}
	for _, f := range change {
		f(e)
	}
	return e
}

func endpoint(host string, port uint32, change ...func(*endpointv3.LbEndpoint)) *endpointv3.LbEndpoint {
	return at(socket(host, port), change...)
}

func health(h corev3.HealthStatus) func(*endpointv3.LbEndpoint) {
	return func(e *endpointv3.LbEndpoint) { e.HealthStatus = h }
}

// meta sets a string of the filter metadata.
func meta(filter, key, value string) func(*endpointv3.LbEndpoint) {
	return func(e *endpointv3.LbEndpoint) {
		if e.GetMetadata() == nil {
			e.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
		}
		if e.GetMetadata().GetFilterMetadata()[filter] == nil {
			e.Metadata.FilterMetadata[filter] = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		e.Metadata.FilterMetadata[filter].Fields[key] = structpb.NewStringValue(value)
	}
}

func mutualTLS() func(*endpointv3.LbEndpoint) {
	return meta("envoy.transport_socket_match", "tlsMode", "istio")
}
