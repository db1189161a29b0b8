package mcp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// startBoth serves istiods and data planes.
func startBoth(t *testing.T, o mcp.Options) *rig {
	t.Helper()
	return startServer(t, o, mcp.ServerOptions{DataPlanes: dataplane.NewServer(dataplane.Options{})})
}

// clusters returns the clusters in the last answer, without what all names end
// in.
func (i *istiod) clusters() []string {
	i.t.Helper()
	all := i.answers(clusterType)
	if len(all) == 0 {
		return nil
	}
	var names []string
	for _, a := range all[len(all)-1].GetResources() {
		var c clusterv3.Cluster
		if err := a.UnmarshalTo(&c); err != nil {
			i.t.Fatal(err)
		}
		names = append(names, strings.TrimSuffix(c.GetName(), ".k0-0-tri.zk1.bridge.internal"))
	}
	return names
}

func TestServer_DataPlanes(t *testing.T) {
	bubble(t, "an istiod and a data plane are answered at one address by what they ask for", func(t *testing.T) {
		r := startBoth(t, mcp.Options{})
		istiod, envoy := r.connect(newType), r.connect(clusterType)
		r.put(greeter("api.a", "10.0.0.1"))
		if istiod.answers(newType) != nil || envoy.answers(clusterType) != nil {
			t.Error("an answer before the set is complete, want none")
		}
		r.target.SourcesComplete()
		if got := istiod.entries(newType); fmt.Sprint(got) != "[api.a=10.0.0.1]" {
			t.Errorf("istiod has %v, want api.a", got)
		}
		if got := envoy.clusters(); fmt.Sprint(got) != "[outbound|50051||api.a]" {
			t.Errorf("the data plane has %v, want the cluster of api.a", got)
		}
		r.put(greeter("api.b", "10.0.0.2"))
		time.Sleep(time.Second)
		if got := envoy.clusters(); fmt.Sprint(got) != "[outbound|50051||api.a outbound|50051||api.b]" {
			t.Errorf("the data plane has %v, want the clusters of api.a and api.b", got)
		}
		for _, p := range r.server.Readers() {
			if p.DataPlane != (p.Sent != istiod.answers(newType)[1].GetVersionInfo()) || p.Sent == "" || p.Sent != p.Acked {
				t.Errorf("reader %+v, want all that was sent confirmed, and another version of a data plane", p)
			}
		}
	})
	bubble(t, "a deleted group is removed from the data plane a while later", func(t *testing.T) {
		r := startBoth(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.put(greeter("api.b", "10.0.0.1"))
		r.target.SourcesComplete()
		envoy := r.connect(clusterType)
		groups, err := r.target.Groups(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.write(groups[0], nil)
		time.Sleep(9 * time.Second)
		if got := envoy.clusters(); len(got) != 2 {
			t.Errorf("the data plane has %v at once, want both clusters still", got)
		}
		time.Sleep(2 * time.Second)
		if got := envoy.clusters(); fmt.Sprint(got) != "[outbound|50051||api.b]" {
			t.Errorf("the data plane has %v, want the cluster of api.b", got)
		}
	})
	bubble(t, "a rejection is shown until the type is confirmed", func(t *testing.T) {
		r := startBoth(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		envoy := r.silent(clusterType)
		answer := envoy.answers(clusterType)[0]
		envoy.send(&discovery.DiscoveryRequest{TypeUrl: clusterType, ResponseNonce: answer.GetNonce(), ErrorDetail: &statuspb.Status{Message: "no such policy"}})
		if p := r.server.Readers()[0]; p.Refused != `envoy.config.cluster.v3.Cluster: "no such policy"` {
			t.Errorf("reader %+v, want the refused type and its reason", p)
		}
		r.put(greeter("api.b", "10.0.0.1"))
		time.Sleep(time.Second)
		answer = envoy.answers(clusterType)[1]
		envoy.send(&discovery.DiscoveryRequest{TypeUrl: clusterType, ResponseNonce: answer.GetNonce(), VersionInfo: answer.GetVersionInfo()})
		if p := r.server.Readers()[0]; p.Refused != "" || p.Acked != answer.GetVersionInfo() {
			t.Errorf("reader %+v, want a confirmation instead of the rejection", p)
		}
	})
	bubble(t, "one that does not say who it is has to go", func(t *testing.T) {
		refused := 0
		r := startBoth(t, mcp.Options{Observe: func(o mcp.Observation) {
			if o.Refused == mcp.RefusedRequest {
				refused++
			}
		}})
		stream, err := discovery.NewAggregatedDiscoveryServiceClient(r.dial()).StreamAggregatedResources(t.Context())
		if err == nil {
			err = stream.Send(&discovery.DiscoveryRequest{TypeUrl: clusterType, Node: &corev3.Node{}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument || refused != 1 {
			t.Errorf("Recv() = %v with %d refusals, want InvalidArgument and one", err, refused)
		}
	})
	bubble(t, "a client that does not read affects only itself", func(t *testing.T) {
		r := startBoth(t, mcp.Options{})
		r.put(greeter("api.large", "10.0.0.1"))
		r.target.SourcesComplete()
		r.unread(clusterType, endpointType)
		other := r.connect(clusterType)
		r.put(greeter("api.large", many(20000)...))
		time.Sleep(time.Second)
		r.put(greeter("api.other", "10.0.0.9"))
		time.Sleep(time.Second)
		if got := other.clusters(); len(got) != 2 || len(r.server.Readers()) != 2 {
			t.Errorf("the other has %v of %d readers, want two clusters and two readers", got, len(r.server.Readers()))
		}
		time.Sleep(time.Minute)
		if got := len(r.server.Readers()); got != 1 {
			t.Errorf("%d readers, want 1", got)
		}
	})
	bubble(t, "one that asks for nothing ends in seconds", func(t *testing.T) {
		r := startBoth(t, mcp.Options{})
		silent := r.connect()
		time.Sleep(6 * time.Second)
		if err := silent.failed(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("stream ended with %v, want DeadlineExceeded", err)
		}
	})
	bubble(t, "there is room for thousands", func(t *testing.T) {
		r := startBoth(t, mcp.Options{})
		r.target.SourcesComplete()
		for range 30 {
			conn := r.dial()
			for range 10 {
				r.over(conn, &istiod{}, clusterType)
			}
		}
		synctest.Wait()
		if got := len(r.server.Readers()); got != 300 {
			t.Errorf("%d readers, want 300", got)
		}
	})
	for _, scheme := range []string{"http", "https"} {
		bubble(t, "REST is answered at the same address by "+scheme, func(t *testing.T) {
			ca := newAuthority(t)
			own, trust := ca.names(t, "bridge.example"), x509.NewCertPool()
			trust.AppendCertsFromPEM(ca.pem)
			var access mcp.Access
			if scheme == "https" {
				access.TLS = func() (*tls.Config, error) {
					return &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}, nil
				}
			}
			var requests atomic.Int32
			r := startServer(t, mcp.Options{Observe: func(o mcp.Observation) {
				if o.Kind == mcp.ObservedREST {
					requests.Add(1)
				}
			}}, mcp.ServerOptions{Access: access, DataPlanes: dataplane.NewServer(dataplane.Options{})})
			r.put(greeter("api.a", "10.0.0.1"))
			r.target.SourcesComplete()
			synctest.Wait()
			transport := &http.Transport{
				DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return r.listen.DialContext(ctx) },
				TLSClientConfig: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
			}
			defer transport.CloseIdleConnections()
			pollClusters(t, transport, scheme, "")
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests were counted, want 1", n)
			}
		})
	}
	bubble(t, "one that polls over REST is a reader while its connection is open", func(t *testing.T) {
		r := startBoth(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		synctest.Wait()
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.listen.DialContext(ctx) }}
		defer transport.CloseIdleConnections()
		version := pollClusters(t, transport, "http", "")
		if p := r.server.Readers(); len(p) != 1 || p[0].Node != restNode || !p[0].DataPlane || p[0].Sent != version || p[0].Acked != "" {
			t.Errorf("readers %+v, want the client that was sent %q", p, version)
		}
		time.Sleep(4 * time.Minute)
		if again := pollClusters(t, transport, "http", version); again != "" {
			t.Errorf("sent %q again, want nothing: the client has it", again)
		}
		if p := r.server.Readers(); len(p) != 1 || p[0].Sent != version || p[0].Acked != version {
			t.Errorf("readers %+v, want the client that has %q", p, version)
		}
		time.Sleep(6 * time.Minute)
		if p, at := r.server.Departed(); len(r.server.Readers()) != 0 || p.Node != restNode || time.Since(at) != time.Minute {
			t.Errorf("Readers() = %+v, Departed() = %+v, %s, want none and the one that polled until a minute ago", r.server.Readers(), p, at)
		}
	})
	bubble(t, "without them a data plane is answered as an istiod would be", func(t *testing.T) {
		r := start(t, mcp.Options{})
		r.put(greeter("api.a", "10.0.0.1"))
		r.target.SourcesComplete()
		if got := r.connect(clusterType).answers(clusterType); len(got) != 1 || len(got[0].GetResources()) != 0 {
			t.Errorf("answers %v, want an empty one", got)
		}
	})
}

const restNode = "sidecar~10.0.0.9~web.shop~shop.svc.cluster.local"

// pollClusters asks over REST for clusters as a client that has a version of them, and
// returns the version of the response, or "" if the client has it.
func pollClusters(t *testing.T, by http.RoundTripper, scheme, version string) string {
	t.Helper()
	body := fmt.Sprintf(`{"version_info": %q, "node": {"id": %q}}`, version, restNode)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://bridge.example/v3/discovery:clusters", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: by}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if res.StatusCode == http.StatusNotModified && err == nil {
		return ""
	}
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), "outbound|50051||api.a") {
		t.Errorf("status %d: %s: %v, want 200 with the cluster of api.a", res.StatusCode, text, err)
	}
	var answer struct {
		Version string `json:"version_info"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Version
}
