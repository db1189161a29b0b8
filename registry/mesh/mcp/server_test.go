package mcp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

func TestServer(t *testing.T) {
	bubble(t, "sixteen first requests with garbage nonces get fifteen answers", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect(istioTypes()...)
		for _, typeURL := range istioTypes()[1:] {
			if n := len(i.answers(typeURL)); n != 1 {
				t.Errorf("%s was answered %d times, want once", typeURL, n)
			}
		}
		if n := len(i.answers(istioTypes()[0])); n != 0 {
			t.Errorf("%d answers with the mesh configuration, want none", n)
		}
		expect(t, i.entries(newType), "api.a=10.0.0.1")
	})
	bubble(t, "an unknown type gets an empty response, and the stream continues", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.target.SourcesComplete()
		i := r.connect("a.b/v9/Foo", newType)
		if all := i.answers("a.b/v9/Foo"); len(all) != 1 || len(all[0].GetResources()) != 0 {
			t.Errorf("answers %v, want an empty one", all)
		}
		time.Sleep(time.Hour)
		if err := i.failed(); err != nil {
			t.Error(err)
		}
	})
	bubble(t, "both spellings of the type get the same resources", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect(oldType, newType)
		expect(t, i.entries(oldType), "api.a=10.0.0.1")
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		if got := i.answers(newType)[0].GetResources()[0].GetTypeUrl(); got != "type.googleapis.com/istio.mcp.v1alpha1.Resource" {
			t.Errorf("resource of type %s, want istio.mcp.v1alpha1.Resource", got)
		}
	})
	bubble(t, "a change sends the whole set, and no change sends nothing", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.put(greeter("api.b", "10.0.0.2"))
		r.target.SourcesComplete()
		i := r.connect(newType)
		r.put(greeter("api.b", "10.0.0.3", "10.0.0.4"))
		time.Sleep(time.Second)
		expect(t, i.entries(newType), "api.a=10.0.0.1", "api.b=10.0.0.3,10.0.0.4")
		before := len(i.answers(newType))
		r.put(greeter("api.b", "10.0.0.3", "10.0.0.4"))
		time.Sleep(time.Minute)
		if n := len(i.answers(newType)); n != before {
			t.Errorf("%d answers without a change, want none", n-before)
		}
	})
	bubble(t, "a confirmation gets silence, a stale nonce too, and neither confirms another answer", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.connect(newType)
		first := i.answers(newType)[0]
		r.put(greeter("api.a", "10.0.0.2"))
		time.Sleep(time.Second)
		if n := len(i.answers(newType)); n != 2 {
			t.Fatalf("%d answers, want 2", n)
		}
		acked := r.server.Readers()[0].Acked
		for _, nonce := range []string{first.GetNonce(), "stale", ""} {
			i.send(&discovery.DiscoveryRequest{TypeUrl: newType, VersionInfo: first.GetVersionInfo(), ResponseNonce: nonce})
			time.Sleep(time.Minute)
			if n := len(i.answers(newType)); n != 2 {
				t.Errorf("%d answers after nonce %q, want 2", n, nonce)
			}
		}
		if now := r.server.Readers()[0].Acked; now != acked || acked == first.GetVersionInfo() {
			t.Errorf("confirmed %s after a stale nonce, want %s", now, acked)
		}
	})
	bubble(t, "a type that is never confirmed delays no other type, and gets the newest set once it is confirmed", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.silent(oldType, istioTypes()...) // the mesh configuration is never answered, the old type never confirmed
		for n := range 10 {
			r.put(greeter("api.a", fmt.Sprintf("10.0.0.%d", n+2)))
			time.Sleep(time.Second)
		}
		expect(t, i.entries(newType), "api.a=10.0.0.11")
		old := i.answers(oldType)
		if len(old) != 1 {
			t.Fatalf("%d answers to a type that confirms none, want 1", len(old))
		}
		i.send(&discovery.DiscoveryRequest{TypeUrl: oldType, VersionInfo: old[0].GetVersionInfo(), ResponseNonce: old[0].GetNonce()})
		expect(t, i.entries(oldType), "api.a=10.0.0.11")
	})
	bubble(t, "a refused answer is not sent again before something changes, and is reported once", func(t *testing.T) {
		nacks := 0
		r := start(t, mcp.Options{Observe: func(o mcp.Observation) {
			if o.Kind == mcp.ObservedNack {
				nacks++
			}
		}})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		i := r.silent(newType, newType)
		for n := range 3 {
			all := i.answers(newType)
			if len(all) != n+1 {
				t.Fatalf("%d answers after %d changes, want %d", len(all), n, n+1)
			}
			i.send(&discovery.DiscoveryRequest{TypeUrl: newType, ResponseNonce: all[n].GetNonce(), ErrorDetail: &statuspb.Status{Message: "no"}})
			time.Sleep(time.Hour)
			r.put(greeter("api.a", fmt.Sprintf("10.0.0.%d", n+2)))
			time.Sleep(time.Second)
		}
		if p := r.server.Readers()[0]; nacks != 3 || p.Acked != "" {
			t.Errorf("%d refusals, reader %+v, want 3 and nothing confirmed", nacks, p)
		}
	})
	bubble(t, "a restart with the same content has the same versions", func(t *testing.T) {
		versions := func() []string {
			r := start(t, mcp.Options{})
			r.put(greeter("api.a", "10.0.0.1", "10.0.0.2"))
			r.target.SourcesComplete()
			i := r.connect(newType)
			res := i.answers(newType)[0]
			return []string{res.GetVersionInfo(), decode(t, res)[0].meta.GetVersion(), decode(t, res)[0].meta.GetCreateTime().AsTime().String()}
		}
		first, second := versions(), versions()
		if !slices.Equal(first, second) || slices.Contains(first, "") || strings.HasPrefix(first[2], "1970") {
			t.Errorf("%q and %q, want the same and a creation time", first, second)
		}
	})
	bubble(t, "nothing is answered before every source has reported everything", func(t *testing.T) {
		r := start(t, mcp.Options{})
		i := r.connect(istioTypes()...)
		r.put(greeter("api.a", "10.0.0.1"))
		time.Sleep(time.Hour)
		if n := len(i.answers(newType)); n != 0 || r.target.Ready() == nil {
			t.Fatalf("%d answers before the sources are complete, want none", n)
		}
		r.target.SourcesComplete()
		expect(t, i.entries(newType), "api.a=10.0.0.1")
		if err := r.target.Ready(); err != nil {
			t.Error(err)
		}
	})
	bubble(t, "a registry that is empty is answered with nothing, once it is known to be", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.target.SourcesComplete()
		i := r.connect(newType)
		if all := i.answers(newType); len(all) != 1 || len(all[0].GetResources()) != 0 {
			t.Errorf("answers %v, want an empty one", all)
		}
	})
	bubble(t, "several istiods, and one that does not read delays no other", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		one, two := r.connect(newType), r.connect(newType)
		slow, resume := r.connectStalled(newType)
		for n := range 50 {
			r.put(greeter("api.a", fmt.Sprintf("10.0.1.%d", n)))
			time.Sleep(100 * time.Millisecond)
		}
		expect(t, one.entries(newType), "api.a=10.0.1.49")
		expect(t, two.entries(newType), "api.a=10.0.1.49")
		resume()
		time.Sleep(time.Second)
		expect(t, slow.entries(newType), "api.a=10.0.1.49")
		if n := len(r.server.Readers()); n != 3 {
			t.Errorf("%d istiods in status, want 3", n)
		}
		if p := r.server.Readers()[0]; p.Sent == "" || p.Sent != p.Acked || !strings.Contains(p.Node, "istiod-1") {
			t.Errorf("reader %+v, want istiod-1 with all confirmed", p)
		}
	})
	bubble(t, "pings of thirty seconds end no connection", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.target.SourcesComplete()
		i := r.connect(newType)
		time.Sleep(time.Hour)
		if err := i.failed(); err != nil {
			t.Error(err)
		}
	})
	bubble(t, "the served set outlives the registry, and a host is removed only by a write", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		r.connect(newType)
		time.Sleep(24 * time.Hour)
		late := r.connect(newType)
		expect(t, late.entries(newType), "api.a=10.0.0.1")
	})
	bubble(t, "a service without endpoints stays known, and one without entries is gone", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.put(greeter("api.b", "10.0.0.2"))
		r.target.SourcesComplete()
		i := r.connect(newType)
		r.put(greeter("api.a"))
		groups, err := r.target.Groups(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.write(groups[1], nil)
		time.Sleep(time.Second)
		expect(t, i.entries(newType), "api.a=")
	})
	bubble(t, "two owners of one host are a conflict, not a mixture", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		entries, err := r.codec.Encode(greeter("api.a", "10.0.0.1", "10.0.0.2"))
		if err != nil {
			t.Fatal(err)
		}
		c := registry.Change{Group: entries[0].Group, Put: []registry.Write{{New: registry.Entry{Group: entries[0].Group, Key: entries[1].Key, Value: `{"address":"10.9.9.9","port":1}`}}}}
		if err := r.target.Write(t.Context(), c); err == nil {
			t.Error("Write() = nil, want a conflict with an unknown entry")
		}
	})
}
