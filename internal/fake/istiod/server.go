package istiod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Type URLs with special rules.
const (
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	SecretType   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	FilterType   = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	DebugType    = "istio.io/debug"
)

// Server is the istiod. Its methods may be called from any goroutine. Each change is pushed at
// once.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	mu          sync.Mutex // guards the fields below
	resources   map[string]map[string]*anypb.Any
	version     int
	nonces      int
	opened      int
	connections map[*connection]struct{}
	faults      faults
	authorize   Authorizer
	debug       Debugger
	requests    []Request // the last ones
}

// NewServer returns a server without resources.
func NewServer() *Server {
	return &Server{
		resources:   map[string]map[string]*anypb.Any{},
		connections: map[*connection]struct{}{},
		version:     1,
	}
}

// Register adds the server to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, s)
}

// ServerOptions returns istiod's options of gRPC: it rejects pings more often than every 15 s, and
// requests of more than 4 MiB.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 15 * time.Second}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.MaxRecvMsgSize(4 << 20),
		grpc.MaxConcurrentStreams(100_000),
	}
}

// Set adds resources, or replaces those of the same type and name. A resource must be a cluster, an
// endpoint, or have a field Name.
func (s *Server) Set(resources ...proto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range resources {
		s.put("", NameOf(m), m)
	}
	s.pushed()
}

// SetConfig adds or replaces an object as istiod's generator "api" sends it: by group/version/kind,
// which is not the type of a message, and name.
func (s *Server) SetConfig(kind, name string, m proto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(kind, name, m)
	s.pushed()
}

// SetNamed is Set for a resource whose name cannot be read from it.
func (s *Server) SetNamed(name string, m proto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put("", name, m)
	s.pushed()
}

// put stores a resource under a kind; empty: under the type of its message. The caller holds mu.
func (s *Server) put(kind, name string, m proto.Message) {
	body, err := anypb.New(m)
	if err != nil {
		panic(fmt.Sprintf("fake istiod: %s: %v", name, err)) // only for an invalid message
	}
	typeURL := cmp.Or(kind, body.GetTypeUrl())
	if s.resources[typeURL] == nil {
		s.resources[typeURL] = map[string]*anypb.Any{}
	}
	s.resources[typeURL][name] = body
	s.touch(typeURL, name)
}

// Remove removes resources.
func (s *Server) Remove(typeURL string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.resources[typeURL], name)
		s.touch(typeURL, name)
	}
	s.pushed()
}

// Replace replaces all resources of their types. Types that are listed and have no resources are
// emptied.
func (s *Server) Replace(types []string, resources ...proto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range types {
		for name := range s.resources[t] {
			s.touch(t, name)
		}
		s.resources[t] = map[string]*anypb.Any{}
	}
	for _, m := range resources {
		s.put("", NameOf(m), m)
	}
	s.pushed()
}

// Push sends everything again to every client.
func (s *Server) Push() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for c := range s.connections {
		c.full = true
		c.wake()
	}
}

// Names returns the names of the resources of a type, sorted.
func (s *Server) Names(typeURL string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.resources[typeURL]))
}

// touch records a change for every connection. The caller holds mu.
func (s *Server) touch(typeURL, name string) {
	for c := range s.connections {
		if c.changed[typeURL] == nil {
			c.changed[typeURL] = map[string]struct{}{}
		}
		c.changed[typeURL][name] = struct{}{}
	}
}

// pushed wakes every connection. The caller holds mu.
func (s *Server) pushed() {
	s.version++
	for c := range s.connections {
		c.wake()
	}
}

// nonce returns a new nonce. The caller holds mu.
func (s *Server) nonce() string {
	s.nonces++
	return strconv.Itoa(s.version) + "-" + strconv.Itoa(s.nonces)
}

// NameOf returns the name of a resource, or an empty string.
func NameOf(m proto.Message) string {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		return m.GetName()
	case *endpointv3.ClusterLoadAssignment:
		return m.GetClusterName()
	}
	if n, ok := m.(interface{ GetName() string }); ok {
		return n.GetName()
	}
	return ""
}

// wildcard reports whether istiod sends all resources of a type, whatever is requested.
func wildcard(typeURL string) bool {
	switch typeURL {
	case EndpointType, RouteType, SecretType, FilterType:
		return false
	}
	return true
}

// Connection is a connected client.
type Connection struct {
	ID          string // id of the node, its pod and namespace, and a counter
	Node        *corev3.Node
	Address     string
	ConnectedAt time.Time
	Delta       bool
	Watches     map[string][]string // names by type URL; nil for all
}

// Connections returns the clients in the order in which they connected.
func (s *Server) Connections() []Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Connection
	for _, c := range slices.SortedFunc(maps.Keys(s.connections), func(a, b *connection) int { return a.number - b.number }) {
		if c.node == nil {
			continue
		}
		shown := Connection{ID: c.id, Node: c.node, Address: c.address, ConnectedAt: c.since, Delta: c.delta, Watches: map[string][]string{}}
		for t, w := range c.watches {
			shown.Watches[t] = nil
			if !wildcard(t) {
				shown.Watches[t] = slices.Sorted(maps.Keys(w.names))
			}
		}
		all = append(all, shown)
	}
	return all
}

// Client is a connection as the debug API shows it.
type Client struct {
	ID          string              `json:"connectionId"`
	ConnectedAt time.Time           `json:"connectedAt"`
	Address     string              `json:"address,omitempty"`
	Labels      map[string]string   `json:"labels,omitempty"`
	Metadata    map[string]any      `json:"metadata,omitempty"`
	Watches     map[string][]string `json:"watches,omitempty"`
}

// DebugPage returns a page of the debug API, with its HTTP status. The page is adsz or connections.
// It shows all clients or, with ?proxyID=, the first one whose ID contains the text.
func DebugPage(query string, clients []Client) (body []byte, code int) {
	page, filter, _ := strings.Cut(query, "?proxyID=")
	if page != "adsz" && page != "connections" {
		return []byte("404 page not found"), http.StatusNotFound
	}
	var listed []Client
	for _, c := range clients {
		if page == "connections" {
			c.Metadata, c.Watches = nil, nil
		}
		if strings.Contains(c.ID, filter) {
			listed = append(listed, c)
		}
	}
	if filter != "" {
		if len(listed) == 0 {
			return []byte("Proxy not connected to this Pilot instance. It may be connected to another instance."), http.StatusNotFound
		}
		listed = listed[:1]
	}
	body, err := json.Marshal(struct {
		Total   int      `json:"totalClients"`
		Clients []Client `json:"clients,omitempty"`
	}{len(listed), listed})
	if err != nil {
		panic(err) // only for metadata that is not JSON
	}
	return body, http.StatusOK
}

// ServeDebug serves DebugPage over HTTP.
func ServeDebug(w http.ResponseWriter, r *http.Request, clients []Client) {
	body, code := DebugPage(strings.TrimPrefix(r.URL.RequestURI(), "/debug/"), clients)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
