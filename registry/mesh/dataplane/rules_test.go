package dataplane_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

const subsets = `{"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": {"name": "a"}, "spec": {"host": "a", "subsets": [{"name": "v1", "labels": {"version": "v1"}}, {"name": "v2"}]}}`

// routeOf returns a VirtualService of host a with one route, and a match if there is one.
func routeOf(match string) string {
	if match != "" {
		match = `"match": [` + match + `], `
	}
	return `{"kind": "VirtualService", "spec": {"hosts": ["a"], "http": [{` + match + `"route": [{"destination": {"host": "a", "subset": "v1"}}]}]}}`
}

// toDestinations returns one with destinations.
func toDestinations(route string) string {
	return `{"kind": "VirtualService", "spec": {"hosts": ["a"], "http": [{"route": [` + route + `]}]}}`
}

func destinationRule(fields string) string {
	return `{"kind": "DestinationRule", "spec": {"host": "b", ` + fields + `}}`
}

// TestParseRules_Refused: documents that are ignored as a whole, and those that Envoy or gRPC reject, are
// refused with its place, and the others are followed.
func TestParseRules_Refused(t *testing.T) {
	for document, want := range map[string]string{
		`{"kind": "Gateway", "spec": {}}`:                                         `document is ignored: kind: "Gateway": expected DestinationRule or VirtualService`,
		`{"kind": "VirtualService"}`:                                              `VirtualService is ignored: spec is missing`,
		`{"kind": "VirtualService", "spek": {}}`:                                  `document is ignored: unknown field "spek"`,
		`{"kind": "VirtualService", "spec": {"hostss": ["a"]}}`:                   `VirtualService is ignored: spec: unknown field "hostss"`,
		`{"apiVersion": "v1", "kind": "VirtualService", "spec": {}}`:              `VirtualService is ignored: apiVersion: "v1": expected networking.istio.io/v1`,
		`{"kind": "VirtualService", "spec": {"http": [{"route": [{}]}]}}`:         `VirtualService of "" is ignored: spec.hosts: names no host`,
		`{"kind": "VirtualService", "spec": {"hosts": ["a"]}}`:                    `VirtualService of "a" is ignored: spec.http: has no route`,
		`{"kind": "VirtualService", "spec": {"hosts": ["a"], "tcp": [{}]}}`:       `spec.tcp: is not supported for data planes`,
		`{"kind": "VirtualService", "spec": {"hosts": ["*.a"]}}`:                  `spec.hosts[0]: "*.a": host patterns are not supported`,
		`{"kind": "VirtualService", "spec": {"hosts": ["a", "a"]}}`:               `spec.hosts[1]: "a" is listed twice`,
		`{"kind": "VirtualService", "spec": {"hosts": ["a b"]}}`:                  `spec.hosts[0]: "a b" is not a host`,
		`{"kind": "VirtualService", "spec": {"hosts": ["a"], "gateways": ["g"]}}`: `spec.gateways: gateways are not served`,
		`{"kind": "VirtualService", "spec": {"hosts": ["a"], "exportTo": ["."]}}`: `spec.exportTo: rules apply in all namespaces`,

		`{"kind": "VirtualService", "spec": {"hosts": ["a"], "http": [{"name": "r", "redirect": {}}]}}`:                                `spec.http[0].redirect: is not supported for data planes`,
		`{"kind": "VirtualService", "spec": {"hosts": ["a"], "http": [{"timeout": "1s", "route": [{"destination": {"host": "a"}}]}]}}`: `spec.http[0].timeout: is not supported for data planes`,

		toDestinations(``):                    `spec.http[0].route: has no destination`,
		toDestinations(`{}`):                  `spec.http[0].route[0]: has no destination`,
		toDestinations(`{"destination": {}}`): `route[0].destination.host: names no host`,
		toDestinations(`{"destination": {"host": "a", "subset": "v3"}}`):                                                                            `route[0].destination.subset: no DestinationRule in this file has subset "v3" of "a"`,
		toDestinations(`{"destination": {"host": "a", "port": {"number": 99999}}}`):                                                                 `route[0].destination.port: 99999 is not within 1 to 65535`,
		toDestinations(`{"destination": {"host": "a", "port": {}}}`):                                                                                `route[0].destination.port: 0 is not within 1 to 65535`,
		toDestinations(`{"destination": {"host": "a"}, "headers": {"request": {"set": {"a": "b"}}}}`):                                               `route[0].headers: is not supported for data planes`,
		toDestinations(`{"destination": {"host": "a"}}, {"destination": {"host": "b"}}`):                                                            `spec.http[0].route: the sum of the weights must be between 1 and 4294967295 (got 0)`,
		toDestinations(strings.Repeat(`{"destination": {"host": "a"}, "weight": 2147483647}, `, 2) + `{"destination": {"host": "a"}, "weight": 2}`): `must be between 1 and 4294967295 (got 4294967296)`,
		toDestinations(`{"destination": {"host": "a"}, "weight": -1}, {"destination": {"host": "b"}, "weight": 2}`):                                 `route[0].weight: must be at least 0`,

		routeOf(`{"port": 1}`):                                             `spec.http[0].match[0].port: is not supported for data planes`,
		routeOf(`{"queryParams": {"a": {"exact": "b"}}}`):                  `match[0].queryParams: is not supported for data planes`,
		routeOf(`{"uri": {"regex": "(["}}`):                                "match[0].uri: error parsing regexp: missing closing ]: `[`; the syntax is that of RE2",
		routeOf(`{"uri": {"regex": ""}}`):                                  `match[0].uri: the regular expression is empty`,
		routeOf(`{"uri": {"regex": "(a{60}){2}"}}`):                        `match[0].uri: the regular expression is a program of about 124 steps, and Envoy accepts about 90`,
		routeOf(`{"uri": {"regex": "\\p{Letter}"}}`):                       `match[0].uri: Envoy does not know the class "\\p{Letter}"`,
		routeOf(`{"uri": {"regex": "\\x{4e2d}"}}`):                         `match[0].uri: Envoy compares bytes`,
		routeOf(`{"uri": {"regex": "` + strings.Repeat("a", 1025) + `"}}`): `match[0].uri: the regular expression has 1025 bytes`,
		routeOf(`{"method": {"prefix": ""}}`):                              `match[0].method: the prefix is empty`,
		routeOf(`{"headers": {"": {"exact": "b"}}}`):                       `match[0].headers: the name of a header is empty`,
		routeOf(`{"headers": {":path": {"exact": "b"}}}`):                  `match[0].headers: ":path" is not a name of a header`,
		routeOf(`{"headers": {"host": {"exact": "b"}}}`):                   `match[0].headers: the hosts of the VirtualService already match the host of a request`,
		routeOf(`{"headers": {"a-bin": {}}}`):                              `match[0].headers: "a-bin": gRPC does not match binary headers`,
		routeOf(`{"headers": {"a": {"prefix": ""}}}`):                      `match[0].headers: the prefix is empty`,
		routeOf(`{"headers": {"a": {"regex": "*"}}}`):                      `match[0].headers: error parsing regexp`,
		routeOf(`{"withoutHeaders": {"a b": {}}}`):                         `match[0].withoutHeaders: "a b" is not a name of a header`,
		routeOf(`{"withoutHeaders": {"a": {"prefix": ""}}}`):               `match[0].withoutHeaders: the prefix is empty`,
		routeOf(`{"withoutHeaders": {"a": {"exact": "1"}, "b": {"exact": "1"}, "c": {"exact": "1"}, "d": {"exact": "1"}, "e": {"exact": "1"}}}`): `match[0].withoutHeaders: 5 headers with a value, at most 4`,

		`{"kind": "DestinationRule", "spec": {"host": "*"}}`:                              `DestinationRule of "*" is ignored: spec.host: "*": host patterns`,
		`{"kind": "DestinationRule", "spec": {}}`:                                         `spec.host: names no host`,
		destinationRule(`"trafficPolicy": {}`):                                            `spec.trafficPolicy: only loadBalancer: {localityLbSetting: {enabled: true}} is supported`,
		destinationRule(`"exportTo": ["shop"]`):                                           `spec.exportTo: rules apply in all namespaces`,
		destinationRule(`"workloadSelector": {"matchLabels": {"a": "b"}}`):                `spec.workloadSelector: is not supported for data planes`,
		destinationRule(`"subsets": [{"name": "v1", "trafficPolicy": {}}]`):               `spec.subsets[0].trafficPolicy: is not supported for data planes`,
		destinationRule(`"subsets": [{"labels": {"a": "b"}}]`):                            `spec.subsets[0].name: "" is not a name of a subset`,
		destinationRule(`"subsets": [{"name": "v1|2"}]`):                                  `spec.subsets[0].name: "v1|2" is not a name of a subset`,
		destinationRule(`"subsets": [{"name": "v1"}, {"name": "v1"}]`):                    `spec.subsets[1].name: "v1" is defined twice`,
		destinationRule(`"subsets": [{"name": "v1", "labels": {"a": "b c"}}]`):            `spec.subsets[0].labels: "a": "b c" is not a valid label of Kubernetes`,
		`{"kind": "DestinationRule", "spec": {"host": "a", "subsets": [{"name": "v1"}]}}`: `spec.subsets[0].name: "v1" is defined twice`,
	} {
		rules, refused := dataplane.ParseRules([][]byte{[]byte(subsets), []byte(document), []byte(routeOf(""))})
		if len(refused) == 0 {
			t.Errorf("%s is accepted, want %s", document, want)
			continue
		}
		for _, r := range refused {
			if r.Document != 1 {
				t.Errorf("%s: %v is of document %d, want 1", document, r, r.Document)
			}
		}
		if !strings.Contains(refused[0].Error(), want) {
			t.Errorf("%s: %v, want %s", document, refused[0], want)
		}
		if got := routesTo(t, rules, "GRPC"); len(got) != 2 || got[0].GetRoute().GetCluster() != "outbound|80|v1|a" {
			t.Errorf("%s: routes %v, want those of the others", document, got)
		}
	}
}

// TestParseRules_RefusedSubsets: a rule that depends on a refused one is refused with it.
func TestParseRules_RefusedSubsets(t *testing.T) {
	_, refused := dataplane.ParseRules([][]byte{[]byte(routeOf("")), []byte(strings.Replace(subsets, `"v2"`, `"v2", "trafficPolicy": {}`, 1))})
	const want = `subset "v1" of "a" is unknown: DestinationRule of "a" is ignored`
	if len(refused) != 2 || refused[0].Document != 0 || !strings.Contains(refused[0].Error(), want) {
		t.Errorf("refused %v, want %s", refused, want)
	}
}

// routesTo returns the routes that data planes are served for the host a at port 80: Envoy of
// all hosts of the port, gRPC of that one.
func routesTo(t *testing.T, rules dataplane.Rules, protocol string) []*routev3.Route {
	t.Helper()
	s := dataplane.NewServer(dataplane.Options{Rules: rules})
	s.Update([]dataplane.Entry{entry("a", protocol, 80, "10.0.0.1")}, nil)
	var all []*routev3.Route
	name := "outbound|80||a"
	if protocol == "HTTP" {
		name = "80"
	}
	_, body := fetch(t, s, &discovery.DiscoveryRequest{Node: node("shop"), TypeUrl: routeType, ResourceNames: []string{name}})
	var res discovery.DiscoveryResponse
	if err := protojson.Unmarshal(body, &res); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, r := range res.GetResources() {
		var c routev3.RouteConfiguration
		if err := r.UnmarshalTo(&c); err != nil {
			t.Fatal(err)
		}
		for _, h := range c.GetVirtualHosts() {
			all = append(all, h.GetRoutes()...)
		}
	}
	return all
}

// TestParseRules_WithoutHeaders: Envoy and gRPC fulfil no condition on a value while the
// header is absent, so that one on what it is not is two routes.
func TestParseRules_WithoutHeaders(t *testing.T) {
	for match, want := range map[string]string{
		`{"withoutHeaders": {"Stable": {"exact": "yes"}}}`:                         "not present stable | not exact stable",
		`{"withoutHeaders": {"stable": {"regex": "*"}}}`:                           "not present stable",
		`{"withoutHeaders": {"stable": {}}}`:                                       "not present stable",
		`{"withoutHeaders": {"stable": {"regex": ".*"}}}`:                          "not safe_regex stable",
		`{"headers": {"X": {}}, "withoutHeaders": {"a": {"exact": "1"}, "b": {}}}`: "present x, not present a, not present b | present x, not exact a, not present b",
	} {
		rules, refused := dataplane.ParseRules([][]byte{[]byte(subsets), []byte(routeOf(match))})
		if refused != nil {
			t.Fatal(refused)
		}
		for _, protocol := range []string{"HTTP", "GRPC"} {
			var got []string
			routes := routesTo(t, rules, protocol)
			for _, r := range routes[:len(routes)-1] {
				var conditions []string
				for _, h := range r.GetMatch().GetHeaders() {
					text := h.GetName()
					if m := h.GetStringMatch(); m != nil {
						text = string(m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("match_pattern")).Name()) + " " + text
					} else {
						text = "present " + text
					}
					if h.GetInvertMatch() {
						text = "not " + text
					}
					conditions = append(conditions, text)
				}
				got = append(got, strings.Join(conditions, ", "))
			}
			if strings.Join(got, " | ") != want {
				t.Errorf("%s %s: %v, want %s", protocol, match, got, want)
			}
		}
	}
}

// TestParseRules_Method: calls of gRPC are POST, and it matches no such header.
func TestParseRules_Method(t *testing.T) {
	for method, want := range map[string]int{
		`{"exact": "POST"}`: 1, `{"prefix": "P"}`: 1, `{"regex": "GET|POST"}`: 1, `{}`: 1, `{"exact": "GET"}`: 0, `{"regex": "POS"}`: 0,
	} {
		rules, refused := dataplane.ParseRules([][]byte{[]byte(subsets), []byte(routeOf(`{"method": ` + method + `}`))})
		if refused != nil {
			t.Fatal(refused)
		}
		routes := routesTo(t, rules, "GRPC")
		if got := len(routes) - 1; got != want {
			t.Errorf("%s: %d routes by gRPC, want %d", method, got, want)
		}
		if headers := fmt.Sprint(routes[0].GetMatch().GetHeaders()); strings.Contains(headers, ":method") {
			t.Errorf("%s: gRPC is served the condition %s", method, headers)
		}
		if got := routesTo(t, rules, "HTTP"); len(got) != 2 || got[0].GetMatch().GetHeaders()[0].GetName() != ":method" {
			t.Errorf("%s: %v by Envoy, want the condition", method, got)
		}
	}
}

// FuzzParseRules: what is accepted, Envoy's validation and gRPC accept.
func FuzzParseRules(f *testing.F) {
	for _, match := range []string{
		"", `{"uri": {"regex": "/[^/]+"}, "ignoreUriCase": true}`, `{"uri": {}}`, `{"uri": {"prefix": ""}}`, `{"method": {"exact": "POST"}}`,
		`{"headers": {"a": {"prefix": "b"}}, "withoutHeaders": {"c": {"exact": "d"}, "e": {"regex": "*"}}}`, `{"headers": {"": {"exact": "b"}}}`, `{"uri": {"regex": "(["}}`,
	} {
		f.Add([]byte(routeOf(match)))
	}
	f.Add([]byte(toDestinations(`{"destination": {"host": "a", "port": {"number": 80}}, "weight": 0}, {"destination": {"host": "b"}, "weight": 1}`)))
	f.Add([]byte(destinationRule(`"subsets": [{"name": "v1", "labels": {"a": ""}}], "trafficPolicy": {"loadBalancer": {"localityLbSetting": {"enabled": true}}}`)))
	f.Fuzz(func(t *testing.T, document []byte) {
		rules, _ := dataplane.ParseRules([][]byte{[]byte(subsets), document})
		for _, protocol := range []string{"HTTP", "GRPC"} {
			for _, r := range routesTo(t, rules, protocol) {
				if err := cmp.Or(r.ValidateAll(), refusedByGRPC(r)); err != nil {
					t.Errorf("%s: %s: %v", document, protocol, err)
				}
			}
		}
	})
}

// refusedByGRPC returns why gRPC refuses a route, by its xdsresource.
func refusedByGRPC(r *routev3.Route) error {
	expressions := []string{r.GetMatch().GetSafeRegex().GetRegex()}
	for _, h := range r.GetMatch().GetHeaders() {
		switch m := h.GetStringMatch().GetMatchPattern().(type) {
		case nil:
			if h.GetStringMatch() != nil {
				return errors.New("a condition is empty")
			}
		case *matcherv3.StringMatcher_Prefix:
			if m.Prefix == "" {
				return errors.New("a prefix is empty")
			}
		case *matcherv3.StringMatcher_SafeRegex:
			expressions = append(expressions, m.SafeRegex.GetRegex())
		}
		if h.GetName() != strings.ToLower(h.GetName()) {
			return fmt.Errorf("%s is not in lower case", h.GetName())
		}
	}
	for _, text := range expressions {
		if _, err := regexp.Compile(text); err != nil {
			return err
		}
	}
	all := r.GetRoute().GetWeightedClusters().GetClusters()
	var sum uint64
	for _, c := range all {
		sum += uint64(c.GetWeight().GetValue())
	}
	if len(all) > 0 && (sum == 0 || sum > math.MaxUint32) {
		return fmt.Errorf("the sum of weights is %d", sum)
	}
	return nil
}
