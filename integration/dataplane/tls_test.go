package dataplane_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

func TestDataPlane_ClientCertificate(t *testing.T) {
	t.Parallel()
	ca := harness.NewCA(t)
	files := tlsfile.Files{CA: ca.Root}
	files.Cert, files.Key = ca.Server(t)
	b := newBridge(t, mcp.Access{TLS: files.Server, Names: []string{"spiffe://cluster.local/ns/shop/sa/web"}})
	at := backend(t)
	host := b.put(t, "rpc", "grpc", "127.0.0.1:"+portText(at))
	b.target.SourcesComplete()
	connect := func(serviceAccount string) (uint32, error) {
		certificate, key := ca.Client(t, "shop", serviceAccount)
		conn := proxylessOver(t, b.address, "xds:///"+host+":"+portText(uint32(b.ports["grpc"])), map[string]any{
			"type":   "tls",
			"config": map[string]any{"ca_certificate_file": ca.Root, "certificate_file": certificate, "private_key_file": key},
		})
		return tryCall(t.Context(), conn)
	}
	if got, err := connect("web"); err != nil || got != at {
		t.Errorf("%d answers, want %d: %v", got, at, err)
	}
	if _, err := connect("other"); status.Code(err) != codes.Unavailable {
		t.Errorf("another service account: %v", err)
	}
}
