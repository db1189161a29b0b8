package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// validity is how long certificates are valid: the containers of an afternoon.
const validity = 30 * 24 * time.Hour

// certificates makes istiod's authority and the bridge's certificate from it,
// where they do not exist yet. They lie in volumes that nobody else mounts, and
// are readable because istiod and the bridge are different users.
func certificates(args []string) error {
	flags := flag.NewFlagSet("certificates", flag.ContinueOnError)
	istiod := flags.String("istiod", "", "directory for istiod's authority")
	bridge := flags.String("bridge", "", "directory for the bridge's certificate")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(*bridge, "cert.pem")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	authority, err := newAuthority()
	if err != nil {
		return err
	}
	id := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/istio-system/sa/xds-bridge"}
	client, err := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: []*url.URL{id},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, authority)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join(*istiod, "ca-key.pem"):     authority.keyPEM,
		filepath.Join(*istiod, "ca-cert.pem"):    authority.certPEM,
		filepath.Join(*istiod, "root-cert.pem"):  authority.certPEM,
		filepath.Join(*istiod, "cert-chain.pem"): authority.certPEM,
		filepath.Join(*bridge, "root-cert.pem"):  authority.certPEM,
		filepath.Join(*bridge, "key.pem"):        client.keyPEM,
		filepath.Join(*bridge, "cert.pem"):       client.certPEM,
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // see above
			return err
		}
	}
	return nil
}

// pair is a key and its certificate, ready to sign with and to write.
type pair struct {
	key             *ecdsa.PrivateKey
	cert            *x509.Certificate
	keyPEM, certPEM []byte
}

func newAuthority() (pair, error) {
	return sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"docker-compose"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, pair{})
}

// sign makes a key and its certificate; the zero parent lets it sign itself.
func sign(template *x509.Certificate, parent pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	if parent.key == nil {
		parent = pair{key: key, cert: template}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, &key.PublicKey, parent.key)
	if err != nil {
		return pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		key: key, cert: cert,
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}
