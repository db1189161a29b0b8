package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

// TestAdmin_RemoteClients shows that others reach the status API only
// with TLS and the token, and that the commands do by the configuration.
func TestAdmin_RemoteClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pair, text := certificate(t, "localhost")
	ca := w.file("ca.pem", text)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := w.file("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	keyFile := w.file("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	token := w.file("api-token", "s3cret-token\n")
	address := fmt.Sprintf("0.0.0.0:%d", porttest.Free(t)[0])
	whole, err := os.ReadFile(w.config(fileOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.Replace(string(whole), fmt.Sprintf(`admin: { address: "unix:%s/a" }`, w.dir), fmt.Sprintf("admin: { address: %q }", address), 1)
	do(t, "validate", "-f", w.file("plain.yaml", plain)).want(t, exitUsage, "without tls and tokenFile")
	secure := strings.Replace(plain, "admin: {", fmt.Sprintf("admin: { tokenFile: %s, tls: { certFile: %s, keyFile: %s, caFile: %s, serverName: localhost },", token, cert, keyFile, ca), 1)
	do(t, "validate", "-f", w.file("half.yaml", strings.Replace(secure, "tokenFile: "+token+",", "", 1))).want(t, exitUsage, "admin.tokenFile: missing")
	file := w.file("secure.yaml", secure)
	r := w.start(file)
	isInSync(t, file)

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(text))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	for bearer, want := range map[string]int{"": 401, "Bearer ": 401, "Bearer s3cret": 401, "Basic s3cret-token": 401, "Bearer s3cret-token": 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/api/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", bearer)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %d, want %d", bearer, resp.StatusCode, want)
		}
	}
	w.file("api-token", "another\n")
	do(t, "status", "-f", file).want(t, exitOK) // both sides read it again
	r.stop()
	if strings.Contains(r.log.String(), "s3cret") {
		t.Error("the token is in the log")
	}
}
