package ads_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// authority signs certificates.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	pem    string
	keyPEM string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
	}
	made := a.make(t, template)
	a.cert, a.key, a.pem = made.cert, made.key, made.pem
	return a
}

// issue returns a certificate and its key as PEM.
func (a *authority) issue(t *testing.T, name string, valid time.Duration) (cert, key string) {
	t.Helper()
	made := a.make(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
	})
	return made.pem, made.keyPEM
}

func (a *authority) make(t *testing.T, template *x509.Certificate) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{
		cert: cert, key: key,
		pem:    string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		keyPEM: string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})),
	}
}

// secured is an istiod behind TLS whose certificate can be replaced.
type secured struct {
	*istiodfake.Server
	network *network

	mu     sync.Mutex
	cert   tls.Certificate
	client *x509.CertPool // nil: no client certificate is requested
	seen   []string       // common names of client certificates
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{Server: istiodfake.NewServer()}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.cert}, NextProtos: []string{"h2"}}
		if s.client != nil {
			c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, s.client
			c.VerifyConnection = func(state tls.ConnectionState) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.seen = append(s.seen, state.PeerCertificates[0].Subject.CommonName)
				return nil
			}
		}
		return c, nil
	}}
	s.network = serve(t, func(g *grpc.Server) { s.Register(g) }, append(istiodfake.ServerOptions(), grpc.Creds(credentials.NewTLS(config)))...)
	s.Set(cluster("a", 1))
	return s
}

func (s *secured) use(t *testing.T, cert, key string) {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cert = pair
}

func (s *secured) demand(authorities string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = x509.NewCertPool()
	s.client.AppendCertsFromPEM([]byte(authorities))
}

func (s *secured) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

const host = "istiod.istio-system.svc"

// rig is a server with a certificate of an authority that the client's file
// names.
type rig struct {
	*secured
	ca     *authority
	caFile string
	dir    string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{secured: newSecured(t), ca: newAuthority(t, "one"), dir: t.TempDir()}
	r.caFile = filepath.Join(r.dir, "ca.pem")
	write(t, r.caFile, r.ca.pem)
	cert, key := r.ca.issue(t, host, 100*time.Hour)
	r.use(t, cert, key)
	return r
}

func (r *rig) client(t *testing.T, x ads.TLS) (*ads.Client, *view[int64]) {
	t.Helper()
	if x.CAFile == "" {
		x.CAFile = r.caFile
	}
	c := connect(t, r.network, func(o *ads.Options) { o.Address, o.Credentials.TLS = host+":15012", &x })
	v, _ := watch(c, clusters(nil), ads.Wildcard)
	synctest.Wait()
	return c, v
}

func TestTLS(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"authorities from a file, the name from the address": func(t *testing.T) {
			_, v := newRig(t).client(t, ads.TLS{})
			equal(t, "held", v.names(), "a")
		},
		"another name than the certificate's is refused, with both names": func(t *testing.T) {
			c, v := newRig(t).client(t, ads.TLS{ServerName: "other.svc"})
			said := v.one(t).Disconnected.Error()
			is(t, "names", strings.Contains(said, host) && strings.Contains(said, "other.svc"), true)
			is(t, "connected", c.State().Connected, false)
		},
		"a name that differs from the address's": func(t *testing.T) {
			r := newRig(t)
			cert, key := r.ca.issue(t, "istiod-rev.other.svc", time.Hour)
			r.use(t, cert, key)
			_, v := r.client(t, ads.TLS{ServerName: "istiod-rev.other.svc"})
			equal(t, "held", v.names(), "a")
		},
		"an authority that changes is followed without a restart, and the last state stays": func(t *testing.T) {
			r := newRig(t)
			_, v := r.client(t, ads.TLS{})
			v.heard()
			other := newAuthority(t, "two")
			cert, key := other.issue(t, host, 100*time.Hour)
			r.use(t, cert, key)
			r.network.reset()
			in(10 * time.Second)
			e := v.one(t)
			is(t, "reported", strings.Contains(e.Disconnected.Error(), "unknown authority"), true)
			equal(t, "held", v.names(), "a")
			write(t, r.caFile, other.pem)
			in(31 * time.Second)
			equal(t, "confirmed", v.one(t).Confirmed, "a")
		},
		"an expired certificate is reported, and its successor used": func(t *testing.T) {
			r := newRig(t)
			cert, key := r.ca.issue(t, host, -time.Minute)
			r.use(t, cert, key)
			_, v := r.client(t, ads.TLS{})
			is(t, "reported", strings.Contains(v.one(t).Disconnected.Error(), "expired"), true)
			cert, key = r.ca.issue(t, host, time.Hour)
			r.use(t, cert, key)
			in(31 * time.Second)
			equal(t, "held", v.names(), "a")
		},
		"a client certificate is read again at each handshake": func(t *testing.T) {
			r := newRig(t)
			r.demand(r.ca.pem)
			x := ads.TLS{CertFile: filepath.Join(r.dir, "cert.pem"), KeyFile: filepath.Join(r.dir, "key.pem")}
			renew := func(name string) {
				cert, key := r.ca.issue(t, name, time.Hour)
				write(t, x.CertFile, cert)
				write(t, x.KeyFile, key)
			}
			renew("first")
			_, v := r.client(t, x)
			equal(t, "held", v.names(), "a")
			renew("second")
			r.network.reset()
			in(2 * time.Second)
			equal(t, "clients", r.names(), "first", "second")
		},
		"a missing file is reported by its name, and used when it comes": func(t *testing.T) {
			r := newRig(t)
			file := filepath.Join(r.dir, "later.pem")
			_, v := r.client(t, ads.TLS{CAFile: file})
			is(t, "reported", strings.Contains(v.one(t).Disconnected.Error(), file), true)
			write(t, file, "not a certificate")
			in(31 * time.Second)
			is(t, "reported", strings.Contains(v.one(t).Disconnected.Error(), "has no PEM certificate"), true)
			write(t, file, r.ca.pem)
			in(31 * time.Second)
			equal(t, "held", v.names(), "a")
		},
		"a token that is missing, empty or more than one is reported and never sent": func(t *testing.T) {
			r := newRig(t)
			file := filepath.Join(r.dir, "token")
			c := connect(t, r.network, func(o *ads.Options) {
				o.Address = host + ":15012"
				o.Credentials = ads.Credentials{TLS: &ads.TLS{CAFile: r.caFile}, TokenFile: file}
			})
			v, _ := watch(c, clusters(nil), ads.Wildcard)
			for _, step := range []struct{ content, says string }{{"", "no such file"}, {" \n", "is empty"}, {"two words", "more than a token"}} {
				if step.content != "" {
					write(t, file, step.content)
				}
				in(31 * time.Second)
				is(t, step.says, strings.Contains(v.one(t).Disconnected.Error(), step.says), true)
			}
			write(t, file, "ey.token")
			in(31 * time.Second)
			equal(t, "held", v.names(), "a")
		},
	})
}

// TestDial opens a separate stream, like the reader of the mapping.
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
		t.Fatal("Dial(another host, token) = nil, want an error")
	}
}
