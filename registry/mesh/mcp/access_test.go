package mcp_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// authority signs certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key, a.cert = a.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	return a
}

func (a *authority) sign(t *testing.T, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "test"}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key, c
}

// names makes a certificate for names of which those with a colon are URIs.
func (a *authority) names(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	c := &x509.Certificate{KeyUsage: x509.KeyUsageDigitalSignature}
	for _, n := range names {
		if u, err := url.Parse(n); err == nil && u.Scheme != "" {
			c.URIs = append(c.URIs, u)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	key, cert := a.sign(t, c)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// write puts a certificate and its key where files says.
func write(t *testing.T, files tlsfile.Files, c tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	for file, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, files.Key: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err = errors.Join(err, os.WriteFile(file, pem.EncodeToMemory(block), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// network is a listener that connections from any address reach.
type network struct {
	conns chan net.Conn
	ended chan struct{}
	close func()
}

func newNetwork() *network {
	n := &network{conns: make(chan net.Conn), ended: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.ended) })
	return n
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.ended:
		return nil, net.ErrClosed
	}
}
func (n *network) Close() error { n.close(); return nil }
func (*network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 99), Port: 15031} }

// from connects from an address.
func (n *network) from(ctx context.Context, address string) (net.Conn, error) {
	l := bufconn.Listen(1 << 16)
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	ours, err := l.DialContext(ctx)
	theirs := <-accepted
	if err != nil {
		return nil, err
	}
	select {
	case n.conns <- locatedConn{theirs, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 40000))}:
		return ours, nil
	case <-n.ended:
		return nil, net.ErrClosed
	}
}

type locatedConn struct {
	net.Conn
	at net.Addr
}

func (c locatedConn) RemoteAddr() net.Addr { return c.at }

// accessRig is a rig whose server accepts connections from many addresses, with the log.
type accessRig struct {
	*rig
	network *network
	log     bytes.Buffer
	logMu   sync.Mutex

	mu      sync.Mutex
	refused map[mcp.Refusal]int
}

func (g *accessRig) Write(p []byte) (int, error) {
	g.logMu.Lock()
	defer g.logMu.Unlock()
	return g.log.Write(p)
}

func (g *accessRig) lines() []string {
	synctest.Wait()
	g.logMu.Lock()
	defer g.logMu.Unlock()
	var all []string
	for line := range strings.Lines(g.log.String()) {
		if strings.Contains(line, "level=WARN") {
			all = append(all, line)
		}
	}
	return all
}

// counted expects the refusals so far.
func (g *accessRig) counted(want map[mcp.Refusal]int) {
	g.t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !maps.Equal(g.refused, want) {
		g.t.Errorf("refused were %v, want %v", g.refused, want)
	}
}

func startAccess(t *testing.T, access mcp.Access) *accessRig {
	t.Helper()
	g := &accessRig{network: newNetwork(), refused: make(map[mcp.Refusal]int)}
	target := mcp.NewTarget(mcp.Options{Observe: func(o mcp.Observation) {
		if o.Kind == mcp.ObservedRefused {
			g.mu.Lock()
			g.refused[o.Refused]++
			g.mu.Unlock()
		}
	}})
	server := mcp.NewServer(target, mcp.ServerOptions{
		Access: access, Setting: "registries.mesh.istiod.import.", Log: slog.New(slog.NewTextHandler(g, nil)),
	})
	g.rig = &rig{t: t, codec: codec(t), target: target, server: server}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = target.Run(ctx) })
	wg.Go(func() {
		if err := server.Serve(ctx, g.network); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	g.put(greeter("api.Greeter", "10.0.0.1"))
	target.SourcesComplete()
	return g
}

// istiod connects from an address and requests the served type, over TLS if config says
// how.
func (g *accessRig) istiod(address string, config *tls.Config) *istiod {
	g.t.Helper()
	return g.over(g.conn(address, config), &istiod{}, newType)
}

// conn connects from an address; over TLS where config says how.
func (g *accessRig) conn(address string, config *tls.Config) *grpc.ClientConn {
	g.t.Helper()
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient("passthrough:///bridge.example", grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return g.network.from(ctx, address) }))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// served expects that an istiod has so many hosts.
func (g *accessRig) served(i *istiod, hosts int) {
	g.t.Helper()
	if n := len(i.entries(newType)); n != hosts || i.failed() != nil {
		g.t.Errorf("an istiod has %d hosts, want %d: %v", n, hosts, i.failed())
	}
}

// turnedAway expects that a client is refused, while an istiod that is served
// continues being served.
func (g *accessRig) turnedAway(client, other *istiod) {
	g.t.Helper()
	if err := client.failed(); status.Code(err) != codes.Unavailable || len(client.answers(newType)) > 0 {
		g.t.Errorf("stream ended with %v after %d answers, want Unavailable and none", err, len(client.answers(newType)))
	}
	if other != nil {
		before := len(other.entries(newType))
		g.put(greeter(fmt.Sprintf("api.More%d", before), "10.0.0.7"))
		time.Sleep(time.Second)
		g.served(other, before+1)
	}
}

// says expects one more warning, which holds all of these.
func (g *accessRig) says(before int, want ...string) {
	g.t.Helper()
	lines := g.lines()
	if len(lines) != before+1 {
		g.t.Fatalf("%d warnings, want %d: %q", len(lines), before+1, lines)
	}
	for _, w := range want {
		if !strings.Contains(lines[before], w) {
			g.t.Errorf("logged %q, want %q in it", lines[before], w)
		}
	}
}

func TestServer_RefusesOtherNetworks(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	bubble(t, "before anything is read from them, without cost for other clients", func(t *testing.T) {
		g := startAccess(t, mcp.Access{Networks: networks})
		inside := g.istiod("10.1.2.3", nil)
		g.served(inside, 1)
		g.turnedAway(g.istiod("10.2.0.1", nil), inside)
		g.counted(map[mcp.Refusal]int{mcp.RefusedNetwork: 2}) // it tried again after a second
		g.says(0, "client refused", "reason=network", "address=10.2.0.1:40000", "setting=registries.mesh.istiod.import.clients.networks", "remedy=\"if this is one of your clients, add its network")
		g.served(g.istiod("::ffff:10.1.2.4", nil), 2)
		g.served(g.istiod("fd00::1", nil), 2)
	})
	bubble(t, "each address is logged once a minute, and a hundred of them", func(t *testing.T) {
		g := startAccess(t, mcp.Access{Networks: networks})
		for n := range 300 {
			if _, err := g.network.from(t.Context(), fmt.Sprintf("192.0.2.%d", n%150)); err != nil {
				t.Fatal(err)
			}
		}
		g.counted(map[mcp.Refusal]int{mcp.RefusedNetwork: 300})
		if n := len(g.lines()); n != 100 {
			t.Errorf("%d lines logged, want 100", n)
		}
		time.Sleep(time.Minute)
		g.turnedAway(g.istiod("192.0.2.1", nil), nil)
		g.says(100, "address=192.0.2.1:")
	})
}

func TestServer_StreamsPerAddress(t *testing.T) {
	bubble(t, "connections that say nothing are closed in ten seconds", func(t *testing.T) {
		g := startAccess(t, mcp.Access{})
		early := g.istiod("10.0.0.1", nil)
		var silent []net.Conn
		for range 200 {
			c, err := g.network.from(t.Context(), "10.0.0.2")
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, c)
		}
		g.turnedAway(g.istiod("10.0.0.2", nil), early)
		g.says(0, "reason=connections", "clients.networks")
		g.served(g.istiod("10.0.0.3", nil), 2)
		time.Sleep(10 * time.Second)
		for _, c := range silent {
			if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Fatal(err)
			}
		}
		g.served(g.istiod("10.0.0.2", nil), 2)
	})
}

func TestServer_TLS(t *testing.T) {
	bubble(t, "with a certificate that may be replaced at any time", func(t *testing.T) {
		dir, ca := t.TempDir(), newAuthority(t)
		files := tlsfile.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
		g := startAccess(t, mcp.Access{TLS: files.Server})
		trust := x509.NewCertPool()
		trust.AppendCertsFromPEM(ca.pem)
		simple := func() *istiod { return g.istiod("10.0.0.1", &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}) }

		g.turnedAway(simple(), nil)
		g.says(0, "reason=files", "setting=registries.mesh.istiod.import.tls", "restore the certificate and key files")
		write(t, files, ca.names(t, "bridge.example"))
		first := simple()
		g.served(first, 1)

		write(t, files, ca.names(t, "other.example"))
		g.turnedAway(simple(), first)
		g.says(1, "reason=by-client", "import.tls.certFile", "caCertificates")

		write(t, files, ca.names(t, "bridge.example"))
		g.served(simple(), 2)
		if err := os.Remove(files.Key); err != nil {
			t.Fatal(err)
		}
		g.served(simple(), 2)
		g.says(2, "certificates could not be read, using the previous ones", "tls.key")
	})
	bubble(t, "and not in plaintext, while a probe that only connects is none", func(t *testing.T) {
		ca := newAuthority(t)
		own := ca.names(t, "bridge.example")
		g := startAccess(t, mcp.Access{TLS: func() (*tls.Config, error) {
			return &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}, nil
		}})
		g.turnedAway(g.istiod("10.0.0.1", nil), nil)
		g.says(0, "reason=plaintext", "setting=registries.mesh.istiod.import.tls", "mode: SIMPLE")
		probe, err := g.network.from(t.Context(), "10.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		_ = probe.Close()
		g.counted(map[mcp.Refusal]int{mcp.RefusedPlaintext: 1})
	})
}

func TestServer_ClientCertificates(t *testing.T) {
	const identity = "spiffe://cluster.local/ns/istio-system/sa/istiod"
	bubble(t, "by a trusted certificate that holds a name", func(t *testing.T) {
		dir, ca, foreign := t.TempDir(), newAuthority(t), newAuthority(t)
		files := tlsfile.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
		write(t, files, ca.names(t, "bridge.example"))
		if err := os.WriteFile(files.CA, ca.pem, 0o600); err != nil {
			t.Fatal(err)
		}
		g := startAccess(t, mcp.Access{TLS: files.Server, Names: []string{"istiod.example", identity}})
		trust := x509.NewCertPool()
		trust.AppendCertsFromPEM(ca.pem)
		client := func(own ...tls.Certificate) *istiod {
			return g.istiod("10.0.0.1", &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12, Certificates: own})
		}
		known := client(ca.names(t, identity))
		g.served(known, 1)
		g.served(client(ca.names(t, "x.example", "istiod.example")), 1)

		g.turnedAway(client(), known)
		g.says(0, "reason=certificate", "setting=registries.mesh.istiod.import.tls.caFile", "remove caFile", "clients.networks")
		time.Sleep(time.Minute)
		g.turnedAway(client(foreign.names(t, identity)), known)
		g.says(1, "reason=certificate")
		g.turnedAway(client(ca.names(t, identity+"2")), known)
		g.says(2, "reason=name", "setting=registries.mesh.istiod.import.clients.names", identity+"2")
	})
}
