// Package nacos is a Nacos server in memory that behaves as a real one
// does where a bridge sees the difference: one publication per connection
// and service, publications that end with their connection, reads that lag,
// acknowledged pushes, tokens. It can fail in the ways that a real
// server cannot be made to.
//
// It is one server, keeps nothing on disk, checks no instance's health and serves
// HTTP for logins and the list of namespaces alone. It starts no goroutine but
// those of its listeners.
package nacos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/anypb"
)

// Service names a service of the server. Where a test names one, an
// empty namespace is the public one; over the wire it is one of its own, as it
// is on a real server.
type Service struct{ Namespace, Group, Name string }

func (s Service) public() Service {
	if s.Namespace == "" {
		s.Namespace = "public"
	}
	return s
}

// Request is one request that the server received.
type Request struct {
	Type  string
	Conn  string
	Body  []byte
	Token string
}

// A Fault decides what happens to a request before the server looks at it: an
// error code and message to answer, or 0 to continue.
type Fault func(Request) (code int, message string)

// Server is a Nacos server. Its methods may be called at any time.
type Server struct {
	configs

	Lag      time.Duration // of reads behind writes
	User     string        // empty: no authentication
	Password string
	TokenTTL time.Duration

	Namespaces map[string]string // names by id, which anybody may list; nil: the server lists none

	PageLimit int // of services in one page of a list, whatever is asked for; 0: none

	mu         sync.Mutex
	thresholds map[Service]float64                     // of protection
	services   map[Service]map[string][]model.Instance // by connection
	edits      map[Service]func(*model.Instance)       // what was set in the console
	shadow     map[Service]cached
	conns      map[string]*connection
	tokens     map[string]time.Time
	fault      Fault
	lose       func(Request) bool
	skew       time.Duration
	replace    func(Push) []Push
	log        []Request
	next       atomic.Int64
	logins     int
	grpc       *grpc.Server
	http       *http.Server
}

type cached struct {
	at    time.Time
	hosts []model.Instance
}

type connection struct {
	stream     nacosgrpc.BiRequestStream_RequestBiStreamServer
	subscribed map[Service]bool
	end        chan struct{} // closed to end the stream
	ended      bool
	send       sync.Mutex
	sent       <-chan struct{} // closed when the last push has been sent; guarded by the server's mu
}

// NewServer returns a server without services.
func NewServer() *Server {
	return &Server{
		TokenTTL:   time.Hour,
		thresholds: make(map[Service]float64),
		configs:    configs{texts: make(map[Config]string)},
		services:   make(map[Service]map[string][]model.Instance), edits: make(map[Service]func(*model.Instance)), shadow: make(map[Service]cached),
		conns: make(map[string]*connection), tokens: make(map[string]time.Time),
	}
}

// Serve accepts gRPC connections from one listener and logins from another,
// until Close.
func (s *Server) Serve(rpc, web net.Listener) {
	s.grpc = grpc.NewServer(grpc.StatsHandler(tagger{s}), grpc.MaxRecvMsgSize(64<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Minute}))
	nacosgrpc.RegisterRequestServer(s.grpc, s)
	nacosgrpc.RegisterBiRequestStreamServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(rpc) }() // ends with Close
	if web == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /nacos/v1/auth/login", overHTTP{s}.login)
	if s.Namespaces != nil {
		mux.HandleFunc("GET /nacos/v1/console/namespaces", overHTTP{s}.namespaces)
	}
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.http.Serve(web) }() // ends with Close
}

// Close ends every connection and the listeners.
func (s *Server) Close() {
	s.grpc.Stop()
	if s.http != nil {
		_ = s.http.Close()
	}
}

// Fail makes a fault decide over every request; nil ends that.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Lose makes the answers to some requests go missing, after the server did
// what they ask for; nil ends that.
func (s *Server) Lose(f func(Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = f
}

// Skew sets the server's clock off.
func (s *Server) Skew(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = d
}

// Requests returns the requests of a type in order.
func (s *Server) Requests(kind string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.log), func(r Request) bool { return r.Type != kind })
}

// RequestCount returns how many requests there were.
func (s *Server) RequestCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// Logins returns how often a token was given out.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// Connections returns how many clients are set up.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Set makes instances the publication of another client, by its name, without
// a connection; none withdraws it.
func (s *Server) Set(sv Service, client string, instances ...model.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish(sv.public(), "other-"+client, instances)
}

// Forget drops every publication while the connections live on, as a server
// does that lost its data.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.services)
	clear(s.shadow)
}

// Drop ends the streams of every client, and what they published with them.
func (s *Server) Drop() { s.each(func(c *connection) { c.finish() }) }

// Revoke makes every token invalid.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// Reset asks every client for a new connection.
func (s *Server) Reset() {
	s.each(func(c *connection) { c.push("ConnectResetRequest", map[string]string{"requestId": "reset"}) })
}

func (s *Server) each(do func(*connection)) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	for _, c := range all {
		do(c)
	}
}

func (c *connection) finish() {
	c.send.Lock()
	defer c.send.Unlock()
	if !c.ended {
		c.ended = true
		close(c.end)
	}
}

// Instances returns what a service holds now, without the lag, in the order
// of address and connection.
func (s *Server) Instances(sv Service) []model.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts(sv.public())
}

func (s *Server) hosts(sv Service) []model.Instance {
	out := []model.Instance{}
	for _, instances := range s.services[sv] {
		out = append(out, instances...)
	}
	if edit := s.edits[sv]; edit != nil {
		for i := range out {
			out[i].Metadata = maps.Clone(out[i].Metadata)
			edit(&out[i])
		}
	}
	slices.SortFunc(out, func(a, b model.Instance) int {
		address := func(i model.Instance) string { return i.Ip + ":" + strconv.FormatUint(i.Port, 10) }
		return cmp.Or(strings.Compare(address(a), address(b)), strings.Compare(fmt.Sprint(a.Metadata), fmt.Sprint(b.Metadata)))
	})
	return slices.CompactFunc(out, func(a, b model.Instance) bool { return reflect.DeepEqual(a, b) })
}

// overHTTP answers requests for logins and for the list of namespaces.
type overHTTP struct{ *Server }

// tagger gives each transport a name, so that requests and stream of one
// client are known to belong together, as a real server does.
type tagger struct{ s *Server }

type connKey struct{}

func (t tagger) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	id := "conn-" + strconv.FormatInt(t.s.next.Add(1), 10)
	return context.WithValue(ctx, connKey{}, id)
}

func (t tagger) HandleConn(ctx context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnEnd); ok {
		t.s.gone(connOf(ctx))
	}
}
func (tagger) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (tagger) HandleRPC(context.Context, stats.RPCStats)                       {}

func connOf(ctx context.Context) string {
	id, _ := ctx.Value(connKey{}).(string)
	return id
}

func payload(kind string, body any) *nacosgrpc.Payload {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // of plain data alone
	}
	return &nacosgrpc.Payload{Metadata: &nacosgrpc.Metadata{Type: kind}, Body: &anypb.Any{Value: b}}
}
