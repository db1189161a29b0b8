package ads

// Credentials say how a server is authenticated and who the client is. Every
// file is read when it is used, so that a rotated one needs no restart: those of
// TLS at each handshake, the token at each stream.
type Credentials struct {
	// TLS is nil for plaintext.
	TLS *TLS
	// TokenFile holds a bearer token, without white space around it.
	TokenFile string
	// Insecure permits to send the token in plaintext to another host. To
	// loopback it is always sent.
	Insecure bool
}

// TLS configures transport security.
type TLS struct {
	CAFile     string // PEM; the system's authorities if empty
	ServerName string // name to expect in the certificate; the address's host if empty
	CertFile   string // PEM; client certificate
	KeyFile    string // PEM; its key
}

func (c Credentials) check(address string) error { _ = address; return nil }
