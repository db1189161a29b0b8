package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Each kind of error has its own remedy.
func TestPreflight_Remedies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`connection error: desc = "error reading server preface: http2: frame too large"`: "does not speak gRPC",
		"tls: first record does not look like a TLS handshake":                            "the port speaks plaintext",
		"x509: certificate signed by unknown authority":                                   "tls.caFile",
		"x509: certificate is valid for istiod.istio-system.svc, not 10.0.0.1":            "tls.serverName",
		"dial tcp: lookup zk on 10.0.0.2:53: no such host":                                "DNS does not know the name",
		"dial tcp 127.0.0.1:1: connect: connection refused":                               "nothing listens at that port",
		`malformed HTTP status code "\x00\x00"`:                                           "the port does not speak HTTP",
		`malformed HTTP response "\x00\x00\x06"`:                                          "the port does not speak HTTP",
		"the answer holds no accessToken":                                                 "the port is not a port of Nacos",
		"something else":                                                                  "check this",
	} {
		if got := Remedy(errors.New(text), "check this"); !strings.Contains(got, want) || !strings.HasSuffix(got, "check this") {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// A permission is the remedy only for a refusal.
func TestPreflight_RightsRemedies(t *testing.T) {
	t.Parallel()
	const right = "let xds write there"
	for want, err := range map[string]error{
		right:                                      fmt.Errorf("%w: not authenticated", registry.ErrRefused),
		"allow the bridge to read the file":        fmt.Errorf("zookeeper: passwordFile: %w", fs.ErrNotExist),
		"check username and passwordFile":          errors.New("status 403: check username and passwordFile of the registry"),
		"check user and passwordFile":              errors.New("zookeeper: no session: user and passwordFile: the server refused them with code -115"),
		"nothing listens at that port":             errors.New("zookeeper: no session: connect: connection refused"),
		"the check stopped here":                   errors.New("zookeeper: no session: context deadline exceeded"),
		"check tokenFile, and that the":            errors.New("xds istiod:15012: token: open /t: no such file"),
		"the port does not speak HTTP: use istiod": errors.New("malformed HTTP response"),
	} {
		got := RightRemedy(err, right)
		if !strings.Contains(got, want) || strings.Contains(got, right) != (want == right) {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
