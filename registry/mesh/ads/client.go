// Package ads is the xDS client. It asks one management server (istiod or any
// other with aggregated discovery) for resources of any type, in the delta
// variant if the server has it, and reports changes to subscribers. While the
// server is away it keeps what it has: neither silence nor a broken connection
// means that a resource is gone. It does not interpret resources.
//
// Run's goroutine calls every handler. Each stream has two more goroutines, one
// that receives and one that sends, so that neither side blocks the other. While
// Run's goroutine decodes many resources, it waits for one goroutine per processor.
package ads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

// Client keeps one stream to a management server. Clients share nothing.
type Client struct {
	tasks *taskQueue
	state *sharedState
	loop  *clientLoop
	used  atomic.Bool // Run was called
}

// New returns a client that does nothing until Run. The error names the invalid
// field.
func New(o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Node != nil {
		o.Node = proto.CloneOf(o.Node)
	}
	s := &sharedState{state: State{Types: map[string]TypeState{}}}
	return &Client{tasks: newTaskQueue(), state: s, loop: newClientLoop(o.withDefaults(), s)}, nil
}

// Run connects once there is a subscription, and again whenever the stream ends.
// It returns nil once ctx and every goroutine of the client ended. It may be
// called once.
func (c *Client) Run(ctx context.Context) error {
	if c.used.Swap(true) {
		return errors.New("ads: Run was called before")
	}
	defer c.tasks.close()
	c.loop.run(ctx, c.tasks)
	return nil
}

// State returns the state of the client; it may be called at any time.
func (c *Client) State() State { return c.state.get() }

// Redial replaces the connection: the host is resolved again, and any other
// address is preferred to the present one, those given (host:port) before all. The
// old stream continues until the new one has delivered. Redial is repeated until it
// succeeds.
func (c *Client) Redial(first ...string) {
	first = slices.Clone(first)
	c.tasks.add(func(l *clientLoop) { l.connector.replaceConnection(first) })
}

// Options configure a Client. Only Address is required.
type Options struct {
	Address     string       // host:port, or any target that gRPC resolves
	Credentials Credentials  // of the server and the client
	Node        *corev3.Node // sent with the first request of each stream, copied; see Identity
	Mode        Mode         // variant of the protocol
	MaxReceive  int          // bytes of the largest response that is accepted; 0 is DefaultMaxReceive

	// Dialer replaces the network's. It receives Address unresolved, unless Lookup is
	// set. Lookup returns the addresses of a host, for each connection; nil: net's.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	Lookup func(ctx context.Context, host string) ([]string, error)

	Log *slog.Logger // receives changes of state; nil: nothing is logged

	// Observe is called with what happens on the wire, for metrics, from Run's
	// goroutine. It must not block.
	Observe func(Observation)
}

// DefaultMaxReceive is the default of Options.MaxReceive.
const DefaultMaxReceive = 64 << 20

// resourceTimeout is of a name without an answer on a live stream, which is unknown then.
const resourceTimeout = 15 * time.Second

func (o Options) check() error {
	if o.Address == "" {
		return errors.New("ads: Address: required")
	}
	if o.Mode < Auto || o.Mode > StateOfTheWorld {
		return fmt.Errorf("ads: Mode: %d is none of Auto, Delta, StateOfTheWorld", o.Mode)
	}
	if o.MaxReceive < 0 {
		return fmt.Errorf("ads: MaxReceive: %d is negative", o.MaxReceive)
	}
	return o.Credentials.check(o.Address)
}

func (o Options) withDefaults() Options {
	o.MaxReceive = cmp.Or(o.MaxReceive, DefaultMaxReceive)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	return o
}

// Mode is the variant of the protocol that a client speaks.
type Mode int

// The modes. Auto starts with Delta and falls back to StateOfTheWorld if the
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

// Attempts to connect are spaced by the base, times a factor at each failure, at most
// the cap. A received message resets that.
const (
	backoffBase   = time.Second
	backoffCap    = 30 * time.Second
	backoffFactor = 1.6
	backoffJitter = 0.2
)

// Backoff returns the wait after so many failures in a row, from 1.
func Backoff(failures int) time.Duration {
	wait := backoffBase
	for i := 1; i < failures && wait < backoffCap; i++ {
		wait = time.Duration(float64(wait) * backoffFactor)
	}
	return jitter(wait)
}

// NextStream returns when to open the stream after one that delivered. It is a random
// moment within the base, since a server that ends loses all its clients at once, and not
// much sooner than the base after the start of a stream that ended early.
func NextStream(started, ended time.Time) time.Time {
	due := ended.Add(rand.N(backoffBase)) //nolint:gosec // spreads load, keeps no secret
	if soonest := started.Add(jitter(backoffBase)); soonest.After(due) {
		return soonest
	}
	return due
}

// jitter spreads a wait. One above the cap is spread below it, so that the clients
// of a server that is away do not return at the same moment.
func jitter(wait time.Duration) time.Duration {
	spread := float64(wait) * (1 + backoffJitter*(2*rand.Float64()-1)) //nolint:gosec // spreads load, keeps no secret
	if spread > float64(backoffCap) {
		spread = float64(backoffCap) * (1 - backoffJitter*rand.Float64()) //nolint:gosec // as above
	}
	return time.Duration(spread)
}

// State is the state of a client.
type State struct {
	Connected bool                 // a stream is open and has delivered a message
	Mode      Mode                 // spoken now, or to be tried next
	Epoch     int                  // number of the newest stream, 0 before the first
	Address   string               // host:port of the last stream to deliver; empty if gRPC dials by itself
	Since     time.Time            // when Connected last changed
	Attempts  int                  // failures in a row since a message was received
	Err       error                // why the last stream or attempt ended; nil once a stream delivers
	Types     map[string]TypeState // by type URL
}

func (s *State) disconnect() {
	if s.Connected {
		s.Connected, s.Since = false, time.Now()
	}
}

// TypeState is the state of one resource type.
type TypeState struct {
	Version   string // last accepted
	Nonce     string // last received on this stream
	Resources int    // held
	Unknown   int    // asked for and not answered
	Responses int    // received since the start
	Nacks     int    // sent since the start
	Err       error  // last rejection; nil once a response was accepted
}

// sharedState is the State that Run writes and other goroutines read.
type sharedState struct {
	mu    sync.Mutex // guards state
	state State
}

func (s *sharedState) update(change func(s *State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

func (s *sharedState) setType(t *subscribedType) {
	s.update(func(s *State) { s.Types[t.url] = t.state })
}

func (s *sharedState) get() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.Types = maps.Clone(state.Types)
	return state
}

// Observed says what an Observation is about.
type Observed int

// What can be observed.
const (
	StreamOpened     Observed = iota
	StreamClosed              // Err is why, nil if the client ended it
	ConnectFailed             // Err is why, Delay the wait before the next attempt
	ResponseReceived          // Type, Bytes, Resources
	Acknowledged              // Type
	Rejected                  // Type, Err is what the server was sent
	RequestSent               // Type
)

// Observation is one thing that happened on the wire.
type Observation struct {
	Kind      Observed
	Epoch     int    // number of the newest stream that delivered
	Type      string // type URL, if one is concerned
	Bytes     int    // of the resources in a response
	Resources int    // number of resources in a response
	Err       error
	Delay     time.Duration
}

// taskQueue passes work from other goroutines to Run's, in order and all at once,
// so that many changes are one request.
type taskQueue struct {
	wake chan struct{} // there may be tasks

	mu     sync.Mutex // guards what follows
	tasks  []func(*clientLoop)
	closed bool
}

func newTaskQueue() *taskQueue { return &taskQueue{wake: make(chan struct{}, 1)} }

// add never blocks. After close it does nothing.
func (q *taskQueue) add(task func(*clientLoop)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.tasks = append(q.tasks, task)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *taskQueue) drain(l *clientLoop) {
	for tasks := q.remove(); len(tasks) > 0; tasks = q.remove() {
		for _, task := range tasks {
			task(l)
		}
	}
}

func (q *taskQueue) remove() []func(*clientLoop) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tasks := q.tasks
	q.tasks = nil
	return tasks
}

func (q *taskQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.tasks = true, nil
}
