package nacos

import (
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Service names a service of the server. In calls of a test, an empty namespace means the public
// one. Over the wire an empty namespace is a separate one, as on a real server.
type Service struct{ Namespace, Group, Name string }

func (s Service) public() Service {
	if s.Namespace == "" {
		s.Namespace = "public"
	}
	return s
}

// Server is a Nacos server. Its methods may be called at any time and from any goroutine.
type Server struct {
	configs

	Lag      time.Duration // of reads behind writes
	User     string        // empty: no authentication
	Password string
	TokenTTL time.Duration

	Namespaces map[string]string // names by id, listed without a login; nil: not listed

	PageLimit int // maximum number of services in one page of a list; 0: as requested

	mu         sync.Mutex
	thresholds map[Service]float64                     // protection thresholds
	services   map[Service]map[string][]model.Instance // by connection
	edits      map[Service]func(*model.Instance)       // changes made in the console
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
