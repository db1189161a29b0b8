package dataplane_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// paths are where REST has each type.
func paths() map[string]string {
	return map[string]string{
		clusterType: "/v3/discovery:clusters", endpointType: "/v3/discovery:endpoints",
		listenerType: "/v3/discovery:listeners", routeType: "/v3/discovery:routes",
	}
}

// fetch asks for resources over REST.
func fetch(t *testing.T, s *dataplane.Server, r *discovery.DiscoveryRequest) (int, []byte) {
	t.Helper()
	body, err := protojson.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.Poll(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, paths()[r.GetTypeUrl()], bytes.NewReader(body)), func(dataplane.Event) {})
	return w.Code, w.Body.Bytes()
}

// all returns the resources of a type, as JSON by name.
func all(t *testing.T, s *dataplane.Server, typeURL string, names ...string) []any {
	t.Helper()
	code, body := fetch(t, s, &discovery.DiscoveryRequest{Node: node("shop"), TypeUrl: typeURL, ResourceNames: names})
	var answer struct {
		Resources []any `json:"resources"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || code != http.StatusOK {
		t.Fatalf("status %d: %s: %v, want 200", code, body, err)
	}
	slices.SortFunc(answer.Resources, func(a, b any) int { return strings.Compare(indented(t, a), indented(t, b)) })
	return answer.Resources
}

func indented(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// golden compares the resources of an entry with a file.
func golden(t *testing.T, name string, s *dataplane.Server, api ...string) {
	t.Helper()
	got := indented(t, map[string]any{
		"clusters": all(t, s, clusterType), "endpoints": all(t, s, endpointType),
		"listeners": append(all(t, s, listenerType), all(t, s, listenerType, append(api, "-")...)...),
		"routes":    append(all(t, s, routeType), all(t, s, routeType, "outbound|50051||greeter.internal")...),
	})
	file := filepath.Join("testdata", name+".json")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("served\n%s\nwant %s", got, file)
	}
}

// canary divides calls to a host: by a header, and 90 to 10.
func canary(t *testing.T) dataplane.Rules {
	t.Helper()
	rules, refused := dataplane.ParseRules([][]byte{
		[]byte(`{"kind": "DestinationRule", "spec": {"host": "greeter.internal", "subsets": [
			{"name": "v1", "labels": {"version": "v1"}}, {"name": "v2", "labels": {"version": "v2"}}]}}`),
		[]byte(`{"kind": "VirtualService", "spec": {"hosts": ["greeter.internal"], "http": [
			{"name": "canary", "match": [{"uri": {"prefix": "/greet."}, "method": {"exact": "POST"}, "headers": {"canary": {"regex": "y.*"}, "tenant": {}}, "withoutHeaders": {"stable": {"exact": "yes"}}}],
			 "route": [{"destination": {"host": "greeter.internal", "subset": "v2"}}]},
			{"route": [
				{"destination": {"host": "greeter.internal", "subset": "v1"}, "weight": 90},
				{"destination": {"host": "greeter.internal", "subset": "v2"}, "weight": 10}]}]}}`),
	})
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	return rules
}

func TestResources(t *testing.T) {
	t.Run("HTTP and TCP", func(t *testing.T) {
		s := dataplane.NewServer(dataplane.Options{VIPs: netip.MustParsePrefix("240.64.0.0/12")})
		web, chat, unreachable := entry("web.internal", "HTTP", 80, "10.0.0.1"), entry("chat.internal", "TCP", 20880, "10.0.0.2", "fd00::1"), entry("hidden.internal", "TCP", 20880)
		web.Spec.Addresses, chat.Spec.Addresses = []string{"240.64.0.1"}, []string{"240.64.0.2"}
		s.Update([]dataplane.Entry{web, chat, unreachable}, nil)
		golden(t, "http-and-tcp", s)
	})
	t.Run("gRPC by weights, localities and routes", func(t *testing.T) {
		s := dataplane.NewServer(dataplane.Options{Rules: canary(t)})
		e := entry("greeter.internal", "GRPC", 50051, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
		for i, zone := range []string{"eu/a", "eu/a", "eu/b/rack", "eu/b/rack"} {
			e.Spec.Endpoints[i].Locality, e.Spec.Endpoints[i].Weight = zone, 100
			e.Spec.Endpoints[i].Labels = map[string]string{"version": "v1"}
		}
		e.Spec.Endpoints[3].Weight, e.Spec.Endpoints[3].Labels = 300, map[string]string{"version": "v2"}
		s.Update([]dataplane.Entry{e}, nil)
		golden(t, "grpc", s, "greeter.internal:50051")
	})
	t.Run("weights that exceed 32 bits together keep their ratio", func(t *testing.T) {
		s := dataplane.NewServer(dataplane.Options{})
		e := entry("heavy.internal", "TCP", 80, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
		for i := range e.Spec.Endpoints {
			e.Spec.Endpoints[i].Weight = 4_000_000_000 >> i
		}
		s.Update([]dataplane.Entry{e}, nil)
		golden(t, "heavy", s)
	})
}

func TestResources_Locality(t *testing.T) {
	rules, refused := dataplane.ParseRules([][]byte{[]byte(`{"kind": "DestinationRule", "spec": {"host": "web.internal",
		"trafficPolicy": {"loadBalancer": {"localityLbSetting": {"enabled": true}}}}}`)})
	if refused != nil {
		t.Fatal(refused)
	}
	s := dataplane.NewServer(dataplane.Options{Rules: rules})
	e := entry("web.internal", "HTTP", 80, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
	for i, locality := range []string{"us/a", "eu/a/rack", "eu/b", "eu/a/rack", ""} {
		e.Spec.Endpoints[i].Locality = locality
	}
	e.Spec.Endpoints[3].Weight = 7
	s.Update([]dataplane.Entry{e}, nil)
	for client, want := range map[string]string{
		"":             "/0 eu/a/rack/weight-1/0 eu/a/rack/weight-7/0 eu/b/0 us/a/0",
		"eu/a/rack":    "eu/a/rack/weight-1/0 eu/a/rack/weight-7/0 eu/b/1 /2 us/a/2",
		"eu/a/other":   "eu/a/rack/weight-1/0 eu/a/rack/weight-7/0 eu/b/1 /2 us/a/2",
		"eu/c":         "eu/a/rack/weight-1/0 eu/a/rack/weight-7/0 eu/b/0 /1 us/a/1",
		"africa/a":     "/0 eu/a/rack/weight-1/0 eu/a/rack/weight-7/0 eu/b/0 us/a/0",
		"us/a/x/y/z/1": "us/a/0 /1 eu/a/rack/weight-1/1 eu/a/rack/weight-7/1 eu/b/1",
	} {
		n := node("shop")
		parts := append(strings.SplitN(client, "/", 3), "", "")
		n.Locality = &corev3.Locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]}
		_, body := fetch(t, s, &discovery.DiscoveryRequest{Node: n, TypeUrl: endpointType})
		var res discovery.DiscoveryResponse
		if err := protojson.Unmarshal(body, &res); err != nil {
			t.Fatal(err)
		}
		var a endpointv3.ClusterLoadAssignment
		if err := res.GetResources()[0].UnmarshalTo(&a); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range a.GetEndpoints() {
			name := strings.TrimRight(l.GetLocality().GetRegion()+"/"+l.GetLocality().GetZone()+"/"+l.GetLocality().GetSubZone(), "/")
			got = append(got, fmt.Sprintf("%s/%d", name, l.GetPriority()))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("a client in %q has %v, want %s", client, got, want)
		}
	}
}

func TestServer_REST(t *testing.T) {
	s := dataplane.NewServer(dataplane.Options{})
	request := &discovery.DiscoveryRequest{Node: node("shop"), TypeUrl: clusterType}
	if code, body := fetch(t, s, request); code != http.StatusNotModified {
		t.Errorf("status %d: %s before the first update, want 304", code, body)
	}
	s.Update([]dataplane.Entry{entry("web.internal", "HTTP", 80, "10.0.0.1")}, nil)
	code, body := fetch(t, s, request)
	var answer struct {
		Version string `json:"version_info"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || code != http.StatusOK || answer.Version == "" {
		t.Fatalf("status %d: %s: %v, want 200 with a version", code, body, err)
	}
	request.VersionInfo = answer.Version
	if code, body = fetch(t, s, request); code != http.StatusNotModified {
		t.Errorf("status %d: %s of the same version, want 304", code, body)
	}
	request.Node = nil
	if code, body = fetch(t, s, request); code != http.StatusInternalServerError || !bytes.Contains(body, []byte("missing node information")) {
		t.Errorf("status %d: %s without a node, want 500", code, body)
	}
}
