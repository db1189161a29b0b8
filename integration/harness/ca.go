package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority in the files that istiod reads its own from.
type CA struct {
	Dir  string // ca-key.pem, ca-cert.pem, root-cert.pem, cert-chain.pem
	Root string // the file of the root certificate

	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewCA makes an authority.
func NewCA(t testing.TB) CA {
	t.Helper()
	ca := CA{Dir: t.TempDir()}
	ca.Root = filepath.Join(ca.Dir, "root-cert.pem")
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"integration test"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	ca.key, ca.cert = ca.sign(t, template)
	for _, name := range []string{"ca-cert.pem", "root-cert.pem", "cert-chain.pem"} {
		writePEM(t, filepath.Join(ca.Dir, name), "CERTIFICATE", ca.cert.Raw)
	}
	writeKey(t, filepath.Join(ca.Dir, "ca-key.pem"), ca.key)
	return ca
}

// Client makes a certificate for a service account of the mesh, for both sides of
// a connection as istiod asks it of workloads, and returns the
// files of the certificate and its key.
func (c CA) Client(t testing.TB, namespace, serviceAccount string) (certFile, keyFile string) {
	t.Helper()
	id := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/" + serviceAccount}
	key, cert := c.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), URIs: []*url.URL{id},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", cert.Raw)
	writeKey(t, keyFile, key)
	return certFile, keyFile
}

// Server makes a certificate for a server at 127.0.0.1 and returns the files
// of the certificate and its key.
func (c CA) Server(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	key, cert := c.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", cert.Raw)
	writeKey(t, keyFile, key)
	return certFile, keyFile
}

// sign makes a key and the certificate of the template for it; an authority
// without a key signs itself.
func (c CA) sign(t testing.TB, template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	parent, signer := c.cert, c.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return key, cert
}

func writeKey(t testing.TB, file string, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	writePEM(t, file, "PRIVATE KEY", der)
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
