package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// certificate returns a certificate of its own for a name, and that in PEM.
func certificate(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// tlsWorld is the mesh and another ZooKeeper over TLS, of istiod.istio-system.svc.
type tlsWorld struct {
	xds, zkAt string // addresses
	zk        *zkfake.Server
	ca, token string // files
}

// overTLS has istiod serve over TLS too, where it wants a token and answers
// debug questions over xDS.
func (w *world) overTLS(token string) tlsWorld {
	w.t.Helper()
	cert, ca := certificate(w.t, "istiod.istio-system.svc")
	server := grpc.NewServer(append(istiodfake.ServerOptions(), grpc.Creds(credentials.NewServerTLSFromCert(&cert)))...)
	w.mesh.Register(server)
	w.mesh.Authorize(func(ctx context.Context) error {
		if p, _ := peer.FromContext(ctx); p == nil || p.AuthInfo == nil {
			return nil // in plaintext it accepts anybody
		}
		if md, _ := metadata.FromIncomingContext(ctx); strings.Join(md["authorization"], "") != "Bearer "+token {
			return grpcstatus.Error(codes.Unauthenticated, "authentication failure")
		}
		return nil
	})
	w.mesh.Debug(func(ctx context.Context, _ string) ([]byte, error) {
		answer := httptest.NewRecorder()
		w.adsz(answer, httptest.NewRequestWithContext(ctx, "GET", "/debug/adsz", nil))
		return answer.Body.Bytes(), nil
	})
	l, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	zk := zkfake.New(zkfake.Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}})
	zkAt, err := zk.Listen(w.t.Context(), "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { server.Stop(); serving.Wait(); _ = zk.Close() })
	return tlsWorld{l.Addr().String(), zkAt, zk, w.file("ca.pem", ca), w.file("token", token+"\n")}
}

// secure makes the world one of TLS and returns a configuration for it.
func (w *world) secure(token string) string {
	w.t.Helper()
	s := w.overTLS(token)
	_ = w.zk.Close()
	w.zk = s.zk
	tlsOf := fmt.Sprintf("tls: { caFile: %s, serverName: istiod.istio-system.svc }", s.ca)
	return w.file("secure.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, tokenFile: %s, %s, mapping: { interval: 50ms } } }
  zk: { zookeeper: { servers: [%q], timeout: 20s, user: bridge, passwordFile: %s, acl: read-only, %s } }
bridges:
  - { name: mesh-to-zk, from: mesh, to: zk, formats: [dubbo-interface] %s }
`, s.xds, s.token, tlsOf, s.zkAt, w.file("password", "hunter2\n"), tlsOf, quick))
}

func TestSecureRegistries(t *testing.T) {
	t.Parallel()
	token := jwt(`{"aud":["istio-ca"]}`)
	t.Run("all is right", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		file := w.secure(token)
		do(t, "preflight", "-f", file).want(t, exitOK, "√ token", "√ xDS", "√ service keys: 1 by debug-xds", "√ write")
		do(t, "run", "--once", "-f", file).want(t, exitOK, "2 own entries")
		node, ok := w.zk.Get("/dubbo/api.Orders/providers/" + w.providers("api.Orders")[0])
		if !ok || len(node.ACL) < 2 {
			t.Errorf("the node's ACL is %+v", node.ACL)
		}
	})
	t.Run("another token", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		file := w.secure(token)
		w.file("token", "rotated-away\n")
		patiently(t, []string{"run", "--once", "-f", file}, exitUnreachable, "source mesh", "authentication failure")
	})
	t.Run("another authority", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		file := w.secure(token)
		_, other := certificate(t, "istiod.istio-system.svc")
		w.file("ca.pem", other)
		patiently(t, []string{"preflight", "-f", file}, exitUnreachable, "× xDS", "certificate", "× reachable")
	})
	t.Run("no token", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		file := w.secure(token)
		if err := os.Remove(w.dir + "/token"); err != nil {
			t.Fatal(err)
		}
		do(t, "run", "--once", "-f", file).want(t, exitUsage, "registries.mesh.istiod.tokenFile: secret file", "no such file")
	})
}
