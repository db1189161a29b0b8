package harness

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy on 127.0.0.1 whose connections a test can break.
type Proxy struct {
	Address string

	target  string
	inspect func() io.Writer // one for each connection: sees what the client sends

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool          // refuse
	hole   chan struct{} // not nil: nothing passes until it is closed
	deaf   chan struct{} // likewise for what the target sends alone
	delay  time.Duration
	bytes  int64 // from the target
}

// StartProxy starts a proxy in front of an address for the length of the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return startProxy(t, target, func() io.Writer { return io.Discard })
}

// StartProxyAt is StartProxy for a proxy whose address has to be known before.
func StartProxyAt(t testing.TB, address, target string) *Proxy {
	t.Helper()
	return startProxyAt(t, address, target, func() io.Writer { return io.Discard })
}

func startProxy(t testing.TB, target string, inspect func() io.Writer) *Proxy {
	t.Helper()
	return startProxyAt(t, "127.0.0.1:0", target, inspect)
}

func startProxyAt(t testing.TB, address, target string, inspect func() io.Writer) *Proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	must(t, err)
	p := &Proxy{Address: listener.Addr().String(), target: target, inspect: inspect, conns: make(map[net.Conn]bool)}
	var running sync.WaitGroup
	running.Go(func() { p.serve(listener, &running) })
	t.Cleanup(func() {
		_ = listener.Close() // ends serve
		p.Heal()
		p.Cut()
		running.Wait()
	})
	return p
}

// Cut closes every connection and refuses new ones until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.closeAll()
}

// Reset closes every connection; new ones are served.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeAll()
}

// BlackHole lets nothing pass and closes nothing until Heal, as a firewall
// that drops packets does.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole == nil {
		p.hole = make(chan struct{})
	}
}

// Deafen passes on what clients send and nothing of what the target answers,
// as a network that is cut in one direction does, until Heal.
func (p *Proxy) Deafen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf == nil {
		p.deaf = make(chan struct{})
	}
}

// Lead makes the proxy pass new connections on to another address.
func (p *Proxy) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Delay holds back for so long what the target sends from now on.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends Cut, BlackHole, Deafen and Delay. What was swallowed is gone with
// its connections.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.delay = false, 0
	for _, held := range []*chan struct{}{&p.hole, &p.deaf} {
		if *held != nil {
			p.closeAll()
			close(*held)
			*held = nil
		}
	}
}

// Received returns how many bytes the target sent through the proxy.
func (p *Proxy) Received() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Connections returns how many connections are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// closeAll is called with the lock held.
func (p *Proxy) closeAll() {
	for conn := range p.conns {
		_ = conn.Close() // its copiers see it
	}
}

func (p *Proxy) serve(listener net.Listener, running *sync.WaitGroup) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		running.Go(func() { p.forward(client) })
	}
}

// forward serves one connection until either side closes it.
func (p *Proxy) forward(client net.Conn) {
	defer client.Close()
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	target, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", p.leadsTo())
	if err != nil {
		return
	}
	defer target.Close()
	seen := p.inspect()
	var back sync.WaitGroup
	back.Go(func() {
		pump(client, target, p.answered)
		_ = client.Close() // ends the copy in the other direction
	})
	pump(target, client, func(b []byte) {
		p.pass()
		_, _ = seen.Write(b)
	})
	_ = target.Close() // likewise
	back.Wait()
}

// pump passes on what it reads once see lets it.
func pump(to io.Writer, from io.Reader, see func([]byte)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			see(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits as long as nothing may pass.
func (p *Proxy) pass() {
	p.mu.Lock()
	hole, delay := p.hole, p.delay
	p.mu.Unlock()
	if hole != nil {
		<-hole
	}
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		<-timer.C
	}
}

// answered waits as long as no answer may pass, and counts it.
func (p *Proxy) answered(b []byte) {
	p.pass()
	p.mu.Lock()
	deaf := p.deaf
	p.mu.Unlock()
	if deaf != nil {
		<-deaf
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += int64(len(b))
}

func (p *Proxy) leadsTo() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

func (p *Proxy) add(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[conn] = true
	}
	return !p.closed
}

func (p *Proxy) remove(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}
