package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Kubernetes is a real API server with an etcd of its own, and nothing else:
// objects are checked and stored, requests are authorized by RBAC, and no
// controller or kubelet acts on anything. Its data outlives a Kill.
type Kubernetes struct {
	URL string
	CA  string // the file of the certificate to trust

	owner  testing.TB // which it ends with, whichever subtest starts it
	args   []string
	server *Process
	client *http.Client
}

// Administrator is the token of a user who may do everything.
const Administrator = "the-token-of-the-administrator"

// StartKubernetes starts one and waits until it serves.
func StartKubernetes(t testing.TB) *Kubernetes {
	t.Helper()
	ca, dir := NewCA(t), t.TempDir()
	cert, key := ca.Server(t)
	client, peer, address := Address(t), Address(t), Address(t)
	tokens := filepath.Join(dir, "tokens.csv")
	must(t, os.WriteFile(tokens, []byte(Administrator+",admin,admin,system:masters\n"), 0o600))
	signing, public := serviceAccountKeys(t, dir)
	Start(t, Command{Name: "etcd", Path: filepath.Join(installed(t, "kubernetes"), "etcd"), Dir: dir, Args: []string{
		"--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://" + client, "--advertise-client-urls=http://" + client,
		"--listen-peer-urls=http://" + peer, "--initial-advertise-peer-urls=http://" + peer, "--initial-cluster=default=http://" + peer,
	}})
	_, port, _ := net.SplitHostPort(address)
	k := &Kubernetes{
		URL: "https://" + address, CA: ca.Root, owner: t, client: &http.Client{Timeout: 10 * time.Second, Transport: trusting(t, ca)},
		args: []string{
			"--etcd-servers=http://" + client, "--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + dir,
			"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
			"--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
			"--service-account-key-file=" + public, "--service-account-signing-key-file=" + signing,
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			// No controller makes the account and the endpoints that these two ask for.
			"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none",
		},
	}
	k.Start(t)
	return k
}

// Start starts the API server, for the first time or once more, and waits
// until it serves.
func (k *Kubernetes) Start(t testing.TB) {
	t.Helper()
	k.server = Start(k.owner, Command{Name: "kube-apiserver", Path: filepath.Join(installed(t, "kubernetes"), "kube-apiserver"), Args: k.args})
	Eventually(t, 2*startTime, "Kubernetes serves at "+k.URL, func() error {
		if !k.server.Running() {
			t.Fatalf("the API server ended: %s", k.server.tail())
		}
		status, answer, err := k.Request(t, http.MethodGet, "/readyz", "", "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, answer)
		}
		return err
	})
}

// Process returns the running API server.
func (k *Kubernetes) Process() *Process { return k.server }

// Kill ends the API server at once; etcd continues, and keeps what is stored.
func (k *Kubernetes) Kill() { k.server.Kill() }

func serviceAccountKeys(t testing.TB, dir string) (signing, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	signing, public = filepath.Join(dir, "accounts.key"), filepath.Join(dir, "accounts.pub")
	writeKey(t, signing, key)
	writePEM(t, public, "PUBLIC KEY", der)
	return signing, public
}
