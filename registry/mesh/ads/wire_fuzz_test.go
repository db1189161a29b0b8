package ads

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// FuzzApply checks that a response of any server only rejects resources, and that one
// without a readable name removes nothing, since it may have any name.
func FuzzApply(f *testing.F) {
	kind := Kind[string]{URL: "type.googleapis.com/google.protobuf.StringValue", Full: true, Decode: func(data []byte) (string, string, error) {
		var v wrapperspb.StringValue
		err := proto.Unmarshal(data, &v)
		return v.GetValue(), v.GetValue(), err
	}}
	for _, r := range fuzzResponses(f, kind.URL) {
		data, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{Resources: r, RemovedResources: []string{"there", ""}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, true, false)
		f.Add(data, false, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, delta, first bool) {
		var m discoveryv3.DeltaDiscoveryResponse
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		epoch := 1
		cached := newCachedType(kind, func(Event[string]) {}, &epoch, &epoch)
		cached.subscribed.add(Wildcard)
		at := newTypeStream(&adsStream{epoch: 1, mode: StateOfTheWorld}, cached.subscribed)
		at.updateRequestedNames(maxNamesBytes)
		if at.responses++; delta {
			at.stream.mode = Delta
		}
		there := rawResource{name: "there", named: true, data: encoded(t, "there")}
		if err := cached.applyResponse(discoveryResponse{url: kind.URL, resources: []rawResource{there}}, at); err != nil {
			t.Fatal(err)
		}
		next := discoveryResponse{url: kind.URL, removed: m.GetRemovedResources()}
		nameless := false
		for _, r := range m.GetResources() {
			got := unwrapEnvelope(r, kind.URL)
			if !delta {
				got = readResource(r.GetResource(), kind.URL)
			}
			next.resources = append(next.resources, got)
			nameless = nameless || got.err != nil && got.name == ""
		}
		if !delta {
			next.removed = nil
		}
		if !first {
			at.responses++
		}
		err := cached.applyResponse(next, at)
		if r := cached.resources["there"]; nameless && len(next.removed) == 0 && (r == nil || !r.hasValue) {
			t.Errorf("apply() = %v removed a resource, want it kept", err)
		}
		if cached.resources[Wildcard] != nil || cached.subscribed.state.Resources < 0 {
			t.Errorf("records %v, %d held, want no wildcard and no negative count", cached.resources, cached.subscribed.state.Resources)
		}
	})
}

func encoded(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := proto.Marshal(wrapperspb.String(name))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func fuzzResponses(tb testing.TB, url string) [][]*discoveryv3.Resource {
	tb.Helper()
	of := func(url string, data []byte) *anypb.Any { return &anypb.Any{TypeUrl: url, Value: data} }
	inner, err := proto.Marshal(&discoveryv3.Resource{Name: "in", Resource: of(resourceURL, encoded(tb, "in"))})
	if err != nil {
		tb.Fatal(err)
	}
	return [][]*discoveryv3.Resource{
		nil,
		{{Name: "a", Version: "1", Resource: of(url, encoded(tb, "a"))}, {Name: "a", Resource: of(url, encoded(tb, "a"))}},
		{{Name: "*", Resource: of(url, encoded(tb, "*"))}},
		{{Name: "there"}},
		{{Resource: of("another", []byte("\xff"))}},
		{{Name: "b", Resource: of(url, encoded(tb, "c"))}},
		{{Resource: of(resourceURL, inner)}},
	}
}
