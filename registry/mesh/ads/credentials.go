package ads

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Credentials say how a server is authenticated and who the client is. Every
// file is read when it is used, so that a rotated one needs no restart: those of
// TLS at each handshake, the token at each stream.
type Credentials struct {
	// TLS is nil for plaintext.
	TLS *TLS
	// TokenFile holds a bearer token; white space around it is not part of it.
	TokenFile string
	// Insecure permits to send the token in plaintext to another host. To
	// loopback it is sent in any case.
	Insecure bool
}

// TLS configures transport security.
type TLS struct {
	CAFile     string // PEM; the system's authorities if empty
	ServerName string // to be found in the certificate's names; the address's host if empty
	CertFile   string // PEM; client certificate
	KeyFile    string // PEM; its key
}

func (c Credentials) check(address string) error {
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return errors.New("ads: Credentials.TLS: CertFile and KeyFile go together")
	}
	if c.TokenFile != "" && c.TLS == nil && !c.Insecure && !loopback(address) {
		return fmt.Errorf("ads: Credentials: the token of %s would go to %s in plaintext: use TLS, or permit it with insecure: true", c.TokenFile, address)
	}
	return nil
}

// loopback says whether an address never leaves this machine.
func loopback(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	if _, rest, ok := strings.Cut(address, ":///"); ok {
		address = rest
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
