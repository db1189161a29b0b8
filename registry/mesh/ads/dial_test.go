package ads_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// TestDial opens a stream of one's own, as the mapping's reader does.
func TestDial(t *testing.T) {
	s := istiodfake.NewServer()
	s.Debug(func(ctx context.Context, name string) ([]byte, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if !slices.Equal(md.Get("authorization"), []string{"Bearer secret"}) {
			return nil, status.Errorf(codes.Unauthenticated, "no token")
		}
		return []byte(name), nil
	})
	address, stop := listen(t, s)
	defer stop()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "secret\n")
	conn, err := ads.Dial(address, ads.Credentials{TokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: istiodfake.DebugType, ResourceNames: []string{"adsz"}}); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	is(t, "body", string(r.GetResources()[0].GetValue()), "adsz")
	if _, err := ads.Dial("istiod.test:15010", ads.Credentials{TokenFile: file}); err == nil {
		t.Fatal("a token in plaintext to another host")
	}
}
