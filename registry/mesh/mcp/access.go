package mcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Access says which clients may connect to a Server. The zero value admits every
// client, in plaintext.
type Access struct {
	// TLS returns the configuration of one connection, so that certificate files may
	// be rotated. While it fails, its last result is used. Nil means plaintext.
	TLS func() (*tls.Config, error)

	// Names are DNS names, URIs and IP addresses. A client's certificate must hold one
	// of them. If empty, every certificate that TLS trusts is admitted.
	Names []string

	// Networks are the networks that clients may connect from. If empty, all are.
	Networks []netip.Prefix
}

// Refusal is the reason why a client was refused or its stream was ended.
type Refusal string

// The reasons for refusals.
const (
	RefusedNetwork     Refusal = "network"     // the client's address is in none of the networks
	RefusedConnections Refusal = "connections" // too many connections are open
	RefusedPlaintext   Refusal = "plaintext"   // the client does not speak TLS
	RefusedCertificate Refusal = "certificate" // the client has no certificate, or an untrusted one
	RefusedName        Refusal = "name"        // the client's certificate holds none of the names
	RefusedByClient    Refusal = "by-client"   // the client does not trust the server's certificate
	RefusedFiles       Refusal = "files"       // the server's certificate cannot be read
	RefusedHandshake   Refusal = "handshake"   // any other error of a handshake
	RefusedStreams     Refusal = "streams"     // too many streams are open, or another stream replaced this one
	RefusedSilent      Refusal = "silent"      // the stream requested nothing
	RefusedSlow        Refusal = "slow"        // the client did not read a response
	RefusedRequest     Refusal = "request"     // the request is larger than any of istiod's
)

// Refusals returns all reasons, sorted.
func Refusals() []Refusal {
	return []Refusal{
		RefusedByClient, RefusedCertificate, RefusedConnections, RefusedFiles, RefusedHandshake, RefusedName,
		RefusedNetwork, RefusedPlaintext, RefusedRequest, RefusedSilent, RefusedSlow, RefusedStreams,
	}
}

// remedy returns the setting of an import that refuses the client, and what an operator
// has to do so that the client is admitted.
func (r Refusal) remedy() (setting, remedy string) {
	switch r {
	case RefusedNetwork:
		return "clients.networks", "if this is one of your clients, add its network"
	case RefusedConnections, RefusedStreams:
		return "clients.networks", "list the networks of your clients, so that other hosts cannot use up the limit"
	case RefusedPlaintext:
		return "tls", "make the client speak TLS. For istiod set tlsSettings.mode: SIMPLE for this address in " +
			"configSources (Istio 1.26 and later; with other modes it sends plaintext); for a data plane change its bootstrap"
	case RefusedCertificate:
		return "tls.caFile", "for a data plane, configure a client certificate. istiod cannot present one: " +
			"remove caFile and set clients.networks, or connect istiod through a proxy that has a certificate"
	case RefusedName:
		return "clients.names", "if this is one of your clients, add one of the names in its certificate"
	case RefusedByClient:
		return "tls.certFile", "make the client trust the issuer and expect a name that the certificate holds. " +
			"For istiod set tlsSettings.caCertificates and sni in configSources; for a data plane change its bootstrap"
	case RefusedFiles:
		return "tls", "restore the certificate and key files"
	case RefusedHandshake:
		return "tls", "see err. The client must speak TLS 1.2 or later, " +
			"and HTTP/2 unless it is a data plane that polls over REST"
	case RefusedSilent, RefusedRequest:
		return "clients.networks", "this is not how istiod or a data plane behaves: " +
			"list the networks of your clients, so that other hosts are refused"
	case RefusedSlow:
		return "clients.networks", "if this is one of your clients, find out why it does not read; " +
			"otherwise list the networks of your clients, so that other hosts are refused"
	}
	return "", ""
}

// A gate decides which connections to a Server are admitted. It refuses a connection
// before it reads from it or in the TLS handshake, so that no other client waits.
type gate struct {
	// Immutable once the server accepts connections.
	server *Server
	access Access
	// maxConnections is several times the maximum of streams, because connections
	// count before they are authenticated.
	maxConnections int
	// rest accepts the connections that do not speak gRPC. Without it they are closed.
	rest *restListener

	// Guarded by mu.
	mu         sync.Mutex
	perAddress map[netip.Addr]int // open connections
	total      int                // sum of perAddress
	lastTLS    *tls.Config        // last result of access.TLS
}

// admit counts a new connection from an address. It returns false and the reason if
// the connection is refused.
func (g *gate) admit(from netip.Addr) (Refusal, bool) {
	isInside := func(p netip.Prefix) bool { return p.Contains(from) }
	if len(g.access.Networks) > 0 && !slices.ContainsFunc(g.access.Networks, isInside) {
		return RefusedNetwork, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= g.maxConnections || g.perAddress[from] >= g.maxConnections/4 {
		return RefusedConnections, false
	}
	g.total++
	g.perAddress[from]++
	return "", true
}

// release ends the count of a connection that admit counted.
func (g *gate) release(from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.perAddress[from]--; g.perAddress[from] == 0 {
		delete(g.perAddress, from)
	}
}

// addressOf returns the IP address of a client. It is invalid for connections that are
// not TCP.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// A gatedListener accepts the connections that the gate admits, and closes the others.
type gatedListener struct {
	net.Listener
	gate *gate
}

// Accept implements net.Listener.
func (l gatedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(c.RemoteAddr())
		why, ok := l.gate.admit(from)
		if ok {
			return &countedConn{Conn: c, release: sync.OnceFunc(func() { l.gate.release(from) })}, nil
		}
		l.gate.server.clientRefused(why, c.RemoteAddr().String(), nil)
		_ = c.Close()
	}
}

// A countedConn is released from the gate's counts when it is closed.
type countedConn struct {
	net.Conn
	release func()
}

func (c *countedConn) Close() error {
	c.release()
	return c.Conn.Close()
}

func (g *gate) credentials() credentials.TransportCredentials {
	if g.access.TLS == nil {
		return gatedCredentials{insecure.NewCredentials(), g}
	}
	return gatedCredentials{credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.tlsConfig() },
	}), g}
}

// protocolREST is the ALPN protocol that distinguishes REST from gRPC.
const protocolREST = "http/1.1"

// tlsConfig returns the current TLS configuration, or the last one while the current
// one cannot be read. It fails if none was ever read.
func (g *gate) tlsConfig() (*tls.Config, error) {
	config, err := g.access.TLS()
	if err == nil {
		if config.VerifyConnection = g.checkName; g.rest != nil {
			config.NextProtos = []string{"h2", protocolREST}
		}
	}
	g.mu.Lock()
	if err == nil {
		g.lastTLS = config
	}
	last := g.lastTLS
	g.mu.Unlock()
	switch {
	case last == nil:
		return nil, filesError{err}
	case err != nil:
		g.server.logStaleCertificates(err)
	}
	return last, nil
}

// filesError reports that the server's certificate cannot be read.
type filesError struct{ error }

func (e filesError) Unwrap() error { return e.error }

// nameError reports that a client's certificate holds none of Access.Names.
type nameError struct{ names []string }

func (e nameError) Error() string {
	return "the client's certificate holds " + strings.Join(e.names, ", ")
}

// checkName returns a nameError unless the client's certificate, which is trusted, holds
// one of Access.Names.
func (g *gate) checkName(s tls.ConnectionState) error {
	if len(g.access.Names) == 0 {
		return nil
	}
	var has []string
	if len(s.PeerCertificates) > 0 {
		has = namesIn(s.PeerCertificates[0])
	}
	if slices.ContainsFunc(has, func(n string) bool { return slices.Contains(g.access.Names, n) }) {
		return nil
	}
	return nameError{has}
}

func namesIn(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// gatedCredentials reports failed handshakes to the gate, and hands connections that
// speak REST to its restListener.
type gatedCredentials struct {
	credentials.TransportCredentials
	gate *gate
}

// ServerHandshake implements credentials.TransportCredentials.
func (h gatedCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	rest := h.gate.rest
	if h.gate.access.TLS == nil && rest != nil {
		read, isREST, err := sniff(c)
		if err != nil {
			return nil, nil, err
		}
		if isREST {
			return rest.dispatch(read)
		}
		c = read
	}
	secure, info, err := h.TransportCredentials.ServerHandshake(c)
	if why, refused := handshakeRefusal(err); refused {
		h.gate.server.clientRefused(why, c.RemoteAddr().String(), err)
	}
	if t, ok := info.(credentials.TLSInfo); err == nil && ok && t.State.NegotiatedProtocol == protocolREST {
		return rest.dispatch(secure)
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials.
func (h gatedCredentials) Clone() credentials.TransportCredentials {
	return gatedCredentials{h.TransportCredentials.Clone(), h.gate}
}

// handshakeRefusal returns the reason why a handshake failed. It returns false if the
// client closed the connection, as probes do that only connect.
func handshakeRefusal(err error) (Refusal, bool) {
	var (
		record tls.RecordHeaderError
		op     *net.OpError
		chain  *tls.CertificateVerificationError
		name   nameError
		files  filesError
	)
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		return "", false
	case errors.As(err, &record):
		return RefusedPlaintext, true
	case errors.As(err, &name):
		return RefusedName, true
	case errors.As(err, &files):
		return RefusedFiles, true
	case errors.As(err, &chain), strings.Contains(err.Error(), "client didn't provide a certificate"):
		return RefusedCertificate, true
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert from the client
		return RefusedByClient, true
	}
	return RefusedHandshake, true
}

// A logLimiter limits log messages, however many clients connect: the same message is
// logged once per logEvery, and at most maxLogged messages within that time.
type logLimiter struct {
	mu         sync.Mutex
	lastLogged map[string]time.Time
}

const (
	logEvery      = time.Minute
	maxLogged     = 100
	maxClientText = 500 // bytes of a text that a client sent
)

// allow reports whether the message may be logged now, and counts it if so.
func (l *logLimiter) allow(message string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.lastLogged, func(_ string, at time.Time) bool { return now.Sub(at) >= logEvery })
	if _, lately := l.lastLogged[message]; lately || len(l.lastLogged) >= maxLogged {
		return false
	}
	l.lastLogged[message] = now
	return true
}

// clientRefused observes and logs that a client was refused.
func (s *Server) clientRefused(r Refusal, address string, err error) {
	s.target.o.Observe(Observation{Kind: ObservedRefused, Refused: r, Err: err})
	from := address
	if host, _, err := net.SplitHostPort(address); err == nil {
		from = host
	}
	if !s.refusals.allow(string(r)+" "+from, time.Now()) {
		return
	}
	setting, remedy := r.remedy()
	attrs := []any{"reason", string(r), "address", address, "setting", s.o.Setting + setting, "remedy", remedy}
	if err != nil {
		text := err.Error()
		attrs = append(attrs, "err", strconv.QuoteToASCII(text[:min(len(text), maxClientText)]))
	}
	s.o.Log.Warn("client refused", attrs...)
}

// logStaleCertificates logs that the certificate files cannot be read, and that the
// certificates read before are still used.
func (s *Server) logStaleCertificates(err error) {
	if s.refusals.allow("files", time.Now()) {
		s.o.Log.Warn("certificates could not be read, using the previous ones", "setting", s.o.Setting+"tls", "err", err)
	}
}
