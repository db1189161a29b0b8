package tlsfile_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

func TestNoFiles(t *testing.T) {
	c, err := tlsfile.Files{}.Config()
	if err != nil || c.RootCAs != nil || len(c.Certificates) != 0 || c.MinVersion < tls.VersionTLS12 {
		t.Errorf("Config() = %+v, %v, want TLS 1.2 with the system's authorities", c, err)
	}
}

// TestServer_RequiresACertificate shows the error. The tests of mcp cover successful
// handshakes.
func TestServer_RequiresACertificate(t *testing.T) {
	if c, err := (tlsfile.Files{}).Server(); err == nil || c != nil || !strings.Contains(err.Error(), "tls.certFile and tls.keyFile: missing") {
		t.Errorf("Server() = %+v, %v, want that the files are missing", c, err)
	}
}

// TestConfig_InvalidFiles shows the errors. The tests of the adapters cover valid files.
func TestConfig_InvalidFiles(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files tlsfile.Files
		says  string
	}{
		"no authorities":              {tlsfile.Files{CA: garbage + ".none"}, "CA file: open " + garbage + ".none"},
		"invalid authorities":         {tlsfile.Files{CA: garbage}, "CA file: " + garbage + " has no PEM certificate"},
		"an invalid certificate":      {tlsfile.Files{Cert: garbage, Key: garbage}, "certificate and key files: "},
		"a certificate without a key": {tlsfile.Files{Cert: garbage}, "certificate and key files: "},
		"a key without a certificate": {tlsfile.Files{Key: garbage}, "certificate and key files: "},
	} {
		t.Run(name, func(t *testing.T) {
			if config, err := c.files.Config(); err == nil || config != nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Config() = %v, %v, want %q", config, err, c.says)
			}
		})
	}
}

// TestSecure_ServerCloses shows the error for a server that closes the connection, as it
// does if it does not speak TLS or requires a client certificate.
func TestSecure_ServerCloses(t *testing.T) {
	dial := tlsfile.Secure(func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Read(make([]byte, 64<<10)) // the whole hello
			_ = theirs.Close()
		}()
		return ours, nil
	}, tlsfile.Files{}.Config)
	conn, err := dial(t.Context(), "tcp", "zk:2281")
	const want = "TLS with zk:2281: EOF: the server closed the connection; check that it speaks TLS on this port, and whether it requires a client certificate"
	if conn != nil || err == nil || err.Error() != want {
		t.Errorf("dial() = %v, %v; want %s", conn, err, want)
	}
}
