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

// Access says which clients may connect to a Server. The zero value permits all,
// in plaintext.
type Access struct {
	// TLS is called for each connection, so that files may be rotated; nil is
	// plaintext. While it fails, connections use what it returned last.
	TLS func() (*tls.Config, error)

	// Names are DNS names, URIs and IP addresses. A client's certificate has to
	// hold one of them; empty permits every certificate that TLS does.
	Names []string

	Networks []netip.Prefix // that clients may connect from; empty: all
}

// Refusal is why a client was refused, or a stream of it ended.
type Refusal string

// The reasons for refusals.
const (
	RefusedNetwork     Refusal = "network"     // its address is in none of the networks
	RefusedConnections Refusal = "connections" // there are too many
	RefusedPlaintext   Refusal = "plaintext"   // it does not speak TLS
	RefusedCertificate Refusal = "certificate" // it has none, or one that is not trusted
	RefusedName        Refusal = "name"        // its certificate has none of the names
	RefusedByClient    Refusal = "by-client"   // it does not trust our certificate
	RefusedFiles       Refusal = "files"       // our own certificate cannot be read
	RefusedHandshake   Refusal = "handshake"   // any other error of a handshake
	RefusedStreams     Refusal = "streams"     // there are too many, or another replaced it
	RefusedSilent      Refusal = "silent"      // its stream asked for nothing
	RefusedSlow        Refusal = "slow"        // it did not read an answer
	RefusedRequest     Refusal = "request"     // it asked for more than any istiod does
)

// Refusals returns all reasons, sorted.
func Refusals() []Refusal {
	return []Refusal{
		RefusedByClient, RefusedCertificate, RefusedConnections, RefusedFiles, RefusedHandshake, RefusedName,
		RefusedNetwork, RefusedPlaintext, RefusedRequest, RefusedSilent, RefusedSlow, RefusedStreams,
	}
}

// remedy returns which setting of imports refuses a client, and what to do to admit it.
func (r Refusal) remedy() (setting, remedy string) {
	switch r {
	case RefusedNetwork:
		return "clients.networks", "add its network if it is one of your clients"
	case RefusedConnections, RefusedStreams:
		return "clients.networks", "name the networks of your clients, so that others leave them room"
	case RefusedPlaintext:
		return "tls", "have it speak TLS: an istiod by tlsSettings.mode: SIMPLE for this address in its configSources (Istio 1.26 and later; other modes are plaintext there), a data plane by its bootstrap"
	case RefusedCertificate:
		return "tls.caFile", "give it one if it is a data plane; istiod itself has none for this: leave caFile out and use clients.networks, or put a proxy with one before it"
	case RefusedName:
		return "clients.names", "add one of the names in its certificate if it is one of your clients"
	case RefusedByClient:
		return "tls.certFile", "have it trust the issuer, and expect a name that it holds: an istiod by tlsSettings.caCertificates and sni in its configSources, a data plane by its bootstrap"
	case RefusedFiles:
		return "tls", "put certificate and key there again"
	case RefusedHandshake:
		return "tls", "see err: it has to speak TLS 1.2, and HTTP/2 unless it is a data plane that polls over REST"
	case RefusedSilent, RefusedRequest:
		return "clients.networks", "it does what no istiod or data plane does: name the networks of your clients, so that others are refused"
	case RefusedSlow:
		return "clients.networks", "if it is one of your clients find out why it does not read; keep others out by naming the networks of your clients"
	}
	return "", ""
}

// A gate admits connections to a Server. It refuses them before it reads anything,
// or in the TLS handshake, which delays no other client.
type gate struct {
	server *Server
	access Access
	most   int           // connections: several times the streams, as they are not authenticated yet
	rest   *restListener // of connections that do not speak gRPC; nil: they end

	mu   sync.Mutex
	open map[netip.Addr]int // connections, by address
	all  int
	last *tls.Config // that access.TLS returned
}

// admit counts a connection from an address, or returns why it is refused.
func (g *gate) admit(from netip.Addr) (Refusal, bool) {
	if len(g.access.Networks) > 0 && !slices.ContainsFunc(g.access.Networks, func(p netip.Prefix) bool { return p.Contains(from) }) {
		return RefusedNetwork, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= g.most || g.open[from] >= g.most/4 {
		return RefusedConnections, false
	}
	g.all++
	g.open[from]++
	return "", true
}

func (g *gate) closed(from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if g.open[from]--; g.open[from] == 0 {
		delete(g.open, from)
	}
}

// addressOf returns the address of a client, none if it is in memory.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// A gatedListener accepts the connections that a gate admits.
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
			return &countedConn{Conn: c, leave: sync.OnceFunc(func() { l.gate.closed(from) })}, nil
		}
		l.gate.server.clientRefused(why, c.RemoteAddr().String(), nil)
		_ = c.Close()
	}
}

// A countedConn counts until it is closed.
type countedConn struct {
	net.Conn
	leave func()
}

func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

func (g *gate) credentials() credentials.TransportCredentials {
	if g.access.TLS == nil {
		return gatedCredentials{insecure.NewCredentials(), g}
	}
	return gatedCredentials{credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.config() },
	}), g}
}

// protocolREST is the protocol of TLS by which REST is distinguished from gRPC.
const protocolREST = "http/1.1"

func (g *gate) config() (*tls.Config, error) {
	config, err := g.access.TLS()
	if err == nil {
		if config.VerifyConnection = g.checkName; g.rest != nil {
			config.NextProtos = []string{"h2", protocolREST}
		}
	}
	g.mu.Lock()
	if err == nil {
		g.last = config
	}
	last := g.last
	g.mu.Unlock()
	switch {
	case last == nil:
		return nil, filesError{err}
	case err != nil:
		g.server.outdated(err)
	}
	return last, nil
}

// filesError says that our own certificate cannot be read.
type filesError struct{ error }

func (e filesError) Unwrap() error { return e.error }

// nameError says that a certificate has none of the names.
type nameError struct{ has []string }

func (e nameError) Error() string {
	return "the client's certificate holds " + strings.Join(e.has, ", ")
}

// checkName checks the names in a trusted certificate.
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

// gatedCredentials reports failed handshakes to a gate, and separates REST from gRPC.
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
	if why, refused := refusal(err); refused {
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

// refusal returns why a handshake failed; false if the client left, as probes do
// that only connect.
func refusal(err error) (Refusal, bool) {
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
	case errors.As(err, &op) && op.Op == "remote error": // an alert of the client's
		return RefusedByClient, true
	}
	return RefusedHandshake, true
}

// A logLimiter limits what is logged: the same message once per logEvery, and
// maxLogged messages within that time, however many clients connect.
type logLimiter struct {
	mu         sync.Mutex
	lastLogged map[string]time.Time
}

const (
	logEvery      = time.Minute
	maxLogged     = 100
	maxClientText = 500 // bytes of a text of a client
)

// due reports whether a message is to be logged.
func (l *logLimiter) due(message string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.lastLogged, func(_ string, at time.Time) bool { return now.Sub(at) >= logEvery })
	if _, lately := l.lastLogged[message]; lately || len(l.lastLogged) >= maxLogged {
		return false
	}
	l.lastLogged[message] = now
	return true
}

// clientRefused counts and logs a client that was refused.
func (s *Server) clientRefused(r Refusal, address string, err error) {
	s.target.o.Observe(Observation{Kind: ObservedRefused, Refused: r, Err: err})
	from := address
	if host, _, err := net.SplitHostPort(address); err == nil {
		from = host
	}
	if !s.refusals.due(string(r)+" "+from, time.Now()) {
		return
	}
	setting, remedy := r.remedy()
	attrs := []any{"reason", string(r), "address", address, "setting", s.o.Setting + setting, "remedy", remedy}
	if err != nil {
		text := err.Error()
		attrs = append(attrs, "err", strconv.QuoteToASCII(text[:min(len(text), maxClientText)]))
	}
	s.o.Log.Warn("a client was refused", attrs...)
}

// outdated logs that the files of TLS cannot be read.
func (s *Server) outdated(err error) {
	if s.refusals.due("files", time.Now()) {
		s.o.Log.Warn("certificates could not be read; those read before are used", "setting", s.o.Setting+"tls", "err", err)
	}
}
