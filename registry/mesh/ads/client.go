// Package ads is the xDS client: it asks one management server (istiod or any
// other that speaks aggregated discovery) for resources of any type, incremental
// where the server can, and tells its subscribers what changed. It keeps what it
// was told for as long as the server is away; it never concludes that something
// is gone from silence or from a broken connection. What the resources mean is
// not its business.
//
// A Client runs one goroutine of its own (Run), in which every handler is called,
// and two per stream: one that receives and one that sends, so that neither side
// of a stream can block the other. While Run's reads many resources, it waits for
// as many as there are processors.
package ads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

// Client keeps one stream to a management server. Several may live in one
// process; they share nothing.
type Client struct {
	inbox  *inbox
	board  *board
	engine *engine
	used   atomic.Bool // Run was called
}

// New returns a client that does nothing until Run. The error names the field
// that is wrong.
func New(o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Node != nil {
		o.Node = proto.CloneOf(o.Node)
	}
	b := &board{}
	return &Client{inbox: newInbox(), board: b, engine: newEngine(o.withDefaults(), b)}, nil
}

// Run connects once something is subscribed to, and connects again whenever the
// stream ends, until ctx ends. It returns nil when ctx ended and every goroutine
// of the client ended. It may be called once.
func (c *Client) Run(ctx context.Context) error {
	if c.used.Swap(true) {
		return errors.New("ads: Run was called before")
	}
	defer c.inbox.close()
	c.engine.loop(ctx, c.inbox)
	return nil
}

// State returns how the client stands; it may be called at any time.
func (c *Client) State() State { return c.board.get() }

// Redial replaces the connection by a new one: the name is looked up again, and
// any address other than the present one is preferred, those given before all,
// as host:port. The old stream continues until the new one has delivered, and
// stays where none can be had; that is tried again until it succeeds.
func (c *Client) Redial(first ...string) {
	first = slices.Clone(first)
	c.inbox.post(func(e *engine) { e.redial, e.first = e.links, first })
}

// SetNode announces the client as another node. The server reads the node only
// at the start of a stream, so that a second stream is opened over the same
// connection, and the first is closed once the second has delivered. Changes in
// quick succession are announced as one.
func (c *Client) SetNode(n *corev3.Node) {
	n = proto.CloneOf(n)
	c.inbox.post(func(e *engine) {
		if !proto.Equal(e.node, n) {
			e.node = n
		}
	})
}

// State is how a client stands.
type State struct {
	Connected bool // a stream is open and has delivered a message
	Mode      Mode // spoken now, or to be tried next
	Epoch     int  // number of the newest stream, 0 before the first
	// Address is where the stream leads that delivers, or did last: host:port, or
	// empty where gRPC connects by itself.
	Address string
	// Since is when Connected last changed.
	Since time.Time
	// Attempts counts failures in a row since a message was last received.
	Attempts int
	// Err is why the last stream or attempt ended; nil once a stream delivers.
	Err   error
	Types map[string]TypeState // by type URL
}

// TypeState is how one resource type stands.
type TypeState struct {
	Version   string // last accepted
	Nonce     string // last received on this stream
	Resources int    // held
	Unknown   int    // asked and not answered
	Responses int    // received since the start
	Nacks     int    // sent since the start
	Err       error  // last rejection; nil once a response was accepted
}

// Observed says what an Observation is about.
type Observed int

// What can be observed.
const (
	StreamOpened     Observed = iota
	StreamClosed              // Err is why, nil where the client ended it
	ConnectFailed             // Err is why, Delay the wait before the next attempt
	ResponseReceived          // Type, Bytes, Resources
	Acknowledged              // Type
	Rejected                  // Type, Err is what the server was told
	RequestSent               // Type
)

// Observation is one thing that happened on the wire.
type Observation struct {
	Kind      Observed
	Epoch     int    // number of the newest stream that delivered
	Type      string // type URL, where one is concerned
	Bytes     int    // of the resources in a response
	Resources int    // number of resources in a response
	Err       error
	Delay     time.Duration
}

// Defaults of Options.
const (
	DefaultMaxReceive  = 64 << 20
	DefaultSilence     = 15 * time.Second
	DefaultBackoffBase = time.Second
	DefaultBackoffCap  = 30 * time.Second
)

// Options configure a Client. Only Address is required.
type Options struct {
	// Address is host:port, or any target that gRPC resolves.
	Address string
	// Credentials say how the server is authenticated and who we are.
	Credentials Credentials
	// Node is sent with the first request of each stream; see Identity. It is
	// copied.
	Node *corev3.Node
	// Mode is the variant of the protocol; Auto by default.
	Mode Mode
	// MaxReceive is the largest response taken, in bytes.
	MaxReceive int
	// Backoff spaces the attempts to connect.
	Backoff Backoff
	// Silence is how long a name may stay unanswered on a live stream before it
	// is told as unknown.
	Silence time.Duration
	// Dialer replaces the network's; Address is then handed to it unresolved,
	// unless Lookup is set.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// Lookup returns the addresses of the host of Address, of its replicas where
	// it knows them. It is asked for each connection; net's resolver if it is nil.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Log receives changes of state; nothing is logged if it is nil.
	Log *slog.Logger
	// Observe is told what happens on the wire, for metrics. It is called from
	// Run's goroutine and must not block.
	Observe func(Observation)
}

// Backoff spaces the attempts to connect: Base, times 1.6 at each failure,
// give or take a fifth, at most Cap. It starts anew once a stream has delivered
// a message; the stream after that one is opened within Base.
type Backoff struct {
	Base time.Duration
	Cap  time.Duration
}

// Mode is the variant of the protocol a client speaks.
type Mode int

// The modes. Auto starts with Delta and falls back to StateOfTheWorld where the
// server does not implement it.
const (
	Auto Mode = iota
	Delta
	StateOfTheWorld
)

// String returns the mode's name as status shows it.
func (m Mode) String() string {
	switch m {
	case Delta:
		return "delta"
	case StateOfTheWorld:
		return "state-of-the-world"
	default:
		return "auto"
	}
}

func (o Options) check() error {
	if o.Address == "" {
		return errors.New("ads: Address: required")
	}
	if o.Mode < Auto || o.Mode > StateOfTheWorld {
		return fmt.Errorf("ads: Mode: %d is none of Auto, Delta, StateOfTheWorld", o.Mode)
	}
	for name, d := range map[string]time.Duration{"Silence": o.Silence, "Backoff.Base": o.Backoff.Base, "Backoff.Cap": o.Backoff.Cap} {
		if d < 0 {
			return fmt.Errorf("ads: %s: %s is negative", name, d)
		}
	}
	if o.MaxReceive < 0 {
		return fmt.Errorf("ads: MaxReceive: %d is negative", o.MaxReceive)
	}
	return o.Credentials.check(o.Address)
}

func (o Options) withDefaults() Options {
	if o.MaxReceive == 0 {
		o.MaxReceive = DefaultMaxReceive
	}
	if o.Silence == 0 {
		o.Silence = DefaultSilence
	}
	if o.Backoff.Base == 0 {
		o.Backoff.Base = DefaultBackoffBase
	}
	if o.Backoff.Cap == 0 {
		o.Backoff.Cap = DefaultBackoffCap
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	return o
}

const (
	backoffFactor = 1.6
	backoffJitter = 0.2
)

// After returns the wait after so many failures in a row, from 1.
func (b Backoff) After(failures int) time.Duration {
	wait := float64(b.Base)
	for i := 1; i < failures && wait < float64(b.Cap); i++ {
		wait *= backoffFactor
	}
	return b.jitter(wait)
}

// slow returns the longest wait.
func (b Backoff) slow() time.Duration { return b.jitter(float64(b.Cap)) }

// Again returns when to open the stream after one that delivered: within Base, at
// a moment of our own, since a server that ends loses all its clients at once;
// and not much sooner than Base after the start of one that ended early.
func (b Backoff) Again(started, ended time.Time) time.Time {
	due := ended.Add(time.Duration(rand.Float64() * float64(b.Base))) //nolint:gosec // spreads load, keeps no secret
	if soonest := started.Add(b.jitter(float64(b.Base))); soonest.After(due) {
		return soonest
	}
	return due
}

// jitter spreads a wait; one above the cap is spread below it, so that not all
// clients of a server that is away come back at one moment.
func (b Backoff) jitter(wait float64) time.Duration {
	wait *= 1 + backoffJitter*(2*rand.Float64()-1) //nolint:gosec // spreads load, keeps no secret
	if wait > float64(b.Cap) {
		wait = float64(b.Cap) * (1 - backoffJitter*rand.Float64()) //nolint:gosec // as above
	}
	return time.Duration(wait)
}

// inbox hands what other goroutines want done to Run's, in order and all at
// once, so that many changes become one request.
type inbox struct {
	wake chan struct{} // there may be something

	mu     sync.Mutex // guards what follows
	todo   []func(*engine)
	closed bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// post never blocks. After close it does nothing.
func (b *inbox) post(do func(*engine)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.todo = append(b.todo, do)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// drain does what was posted, and what is posted meanwhile.
func (b *inbox) drain(e *engine) {
	for {
		todo := b.drainAll()
		if len(todo) == 0 {
			return
		}
		for _, do := range todo {
			do(e)
		}
	}
}

func (b *inbox) drainAll() []func(*engine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	todo := b.todo
	b.todo = nil
	return todo
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.todo = true, nil
}
