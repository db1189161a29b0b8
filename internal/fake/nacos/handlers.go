package nacos

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The answers of a server that callers decide by.
const (
	ok           = 200
	failed       = 500
	unregistered = 301
	noConfig     = 300
	denied       = 403
	invalid      = 400
)

type answer struct {
	ResultCode   int            `json:"resultCode"`
	ErrorCode    int            `json:"errorCode"`
	Success      bool           `json:"success"`
	Message      string         `json:"message,omitempty"`
	Count        int            `json:"count"`
	ServiceNames []string       `json:"serviceNames,omitempty"`
	ServiceInfo  *model.Service `json:"serviceInfo,omitempty"`
	ConnectionID string         `json:"connectionId,omitempty"`
	Content      string         `json:"content,omitempty"`
}

type body struct {
	Namespace   string           `json:"namespace"`
	ServiceName string           `json:"serviceName"`
	GroupName   string           `json:"groupName"`
	Type        string           `json:"type"`
	Instance    model.Instance   `json:"instance"`
	Instances   []model.Instance `json:"instances"`
	Subscribe   bool             `json:"subscribe"`
	HealthyOnly bool             `json:"healthyOnly"`
	PageNo      int              `json:"pageNo"`
	PageSize    int              `json:"pageSize"`

	Tenant  string `json:"tenant"` // of a configuration
	Group   string `json:"group"`
	DataID  string `json:"dataId"`
	Content string `json:"content"`
	CasMd5  string `json:"casMd5"`
}

// Request implements the unary half of the protocol.
func (s *Server) Request(ctx context.Context, p *nacosgrpc.Payload) (*nacosgrpc.Payload, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	kind := p.GetMetadata().GetType()
	r := Request{Type: kind, Conn: connOf(ctx), Body: p.GetBody().GetValue(), Token: p.GetMetadata().GetHeaders()["accessToken"]}
	a := s.answer(r)
	s.mu.Lock()
	lose := s.lose
	s.mu.Unlock()
	if lose != nil && lose(r) {
		return nil, status.Error(codes.Unavailable, "connection reset")
	}
	a.Success = a.ResultCode == ok
	name := strings.TrimSuffix(kind, "Request") + "Response"
	if !a.Success {
		name = "ErrorResponse"
	}
	return payload(name, a), nil
}

func (s *Server) answer(r Request) answer {
	s.mu.Lock()
	s.log = append(s.log, r)
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if code, message := fault(r); code != 0 {
			return answer{ResultCode: failed, ErrorCode: code, Message: message}
		}
	}
	if r.Type == "ServerCheckRequest" {
		return answer{ResultCode: ok, ConnectionID: r.Conn}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[r.Conn] == nil {
		return answer{ResultCode: failed, ErrorCode: unregistered, Message: "Connection is unregistered."}
	}
	if r.Type == "HealthCheckRequest" {
		return answer{ResultCode: ok}
	}
	if s.User != "" && time.Now().After(s.tokens[r.Token]) {
		return answer{ResultCode: failed, ErrorCode: denied, Message: "user not found!"}
	}
	var b body
	if err := json.Unmarshal(r.Body, &b); err != nil {
		return answer{ResultCode: failed, ErrorCode: invalid, Message: err.Error()}
	}
	return s.handle(r, b)
}

func (s *Server) handle(r Request, b body) answer {
	sv := Service{b.Namespace, b.GroupName, b.ServiceName}
	switch r.Type {
	case "BatchInstanceRequest":
		if len(b.Instances) == 0 {
			return answer{ResultCode: failed, ErrorCode: invalid, Message: "instances cannot be empty!"}
		}
		if slices.ContainsFunc(b.Instances, func(i model.Instance) bool { return metadataSize(i) > 1024 }) {
			return answer{ResultCode: failed, ErrorCode: invalid, Message: "Param 'Metadata' is illegal, the param length should not exceed 1024."}
		}
		s.publish(sv, r.Conn, b.Instances)
	case "InstanceRequest":
		if b.Type == "deregisterInstance" {
			s.publish(sv, r.Conn, nil)
		} else {
			s.publish(sv, r.Conn, []model.Instance{b.Instance})
		}
	case "ServiceQueryRequest":
		return answer{ResultCode: ok, ServiceInfo: s.info(sv, selected(s.cachedHosts(sv), b.HealthyOnly))}
	case "SubscribeServiceRequest":
		if b.Subscribe {
			s.conns[r.Conn].subscribed[sv] = true
		} else {
			delete(s.conns[r.Conn].subscribed, sv)
		}
		return answer{ResultCode: ok, ServiceInfo: s.info(sv, selected(s.hosts(sv), false))}
	case "ConfigQueryRequest", "ConfigPublishRequest", "ConfigRemoveRequest":
		return s.request(r.Type, b)
	case "ServiceListRequest":
		return s.list(b)
	default:
		return answer{ResultCode: failed, ErrorCode: failed, Message: "no handler for " + r.Type}
	}
	return answer{ResultCode: ok}
}

func (s *Server) list(b body) answer {
	var names []string
	for sv := range s.services {
		if sv.Namespace == b.Namespace && sv.Group == b.GroupName {
			names = append(names, sv.Name)
		}
	}
	slices.Sort(names)
	size := b.PageSize
	if s.PageLimit > 0 {
		size = min(size, s.PageLimit)
	}
	from := min(len(names), (b.PageNo-1)*b.PageSize)
	return answer{ResultCode: ok, Count: len(names), ServiceNames: names[from:min(len(names), from+size)]}
}

func metadataSize(i model.Instance) int {
	n := 0
	for k, v := range i.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// publish replaces what a connection holds of a service. The caller holds mu.
func (s *Server) publish(sv Service, conn string, instances []model.Instance) {
	if _, kept := s.shadow[sv]; !kept && s.Lag > 0 && s.services[sv] != nil {
		s.shadow[sv] = cached{at: time.Now(), hosts: s.hosts(sv)}
	}
	if s.services[sv] == nil {
		s.services[sv] = make(map[string][]model.Instance)
	}
	if len(instances) == 0 {
		delete(s.services[sv], conn)
	} else {
		stored := slices.Clone(instances)
		for i := range stored {
			stored[i].ServiceName = sv.Group + "@@" + sv.Name
		}
		s.services[sv][conn] = stored
	}
	s.notify(sv)
}

// cachedHosts answers a read as a real server does: as of Lag ago.
func (s *Server) cachedHosts(sv Service) []model.Instance {
	old, kept := s.shadow[sv]
	if kept && time.Since(old.at) < s.Lag {
		return old.hosts
	}
	delete(s.shadow, sv)
	return s.hosts(sv)
}

// info returns what answers and pushes show of a service. If it has a protection
// threshold and no larger share of the hosts is healthy, all are shown as healthy.
func (s *Server) info(sv Service, hosts []model.Instance) *model.Service {
	info := &model.Service{Name: sv.Name, GroupName: sv.Group, Hosts: hosts, Valid: true, LastRefTime: uint64(max(0, time.Now().Add(s.skew).UnixMilli()))}
	threshold, ok := s.thresholds[sv]
	healthy := 0
	for _, h := range hosts {
		if h.Healthy {
			healthy++
		}
	}
	if !ok || len(hosts) == 0 || float64(healthy)/float64(len(hosts)) > threshold {
		return info
	}
	info.ReachProtectionThreshold, info.Hosts = true, slices.Clone(hosts)
	for i := range info.Hosts {
		info.Hosts[i].Healthy = true
	}
	return info
}

// RequestBiStream implements the streaming half of the protocol.
func (s *Server) RequestBiStream(stream nacosgrpc.BiRequestStream_RequestBiStreamServer) error {
	first, err := stream.Recv()
	if err != nil || first.GetMetadata().GetType() != "ConnectionSetupRequest" {
		return err
	}
	id := connOf(stream.Context())
	c := &connection{stream: stream, subscribed: make(map[Service]bool), end: make(chan struct{})}
	s.mu.Lock()
	s.conns[id] = c
	s.mu.Unlock()
	go func() { // ends with the stream
		for {
			p, err := stream.Recv()
			if err != nil {
				c.finish()
				return
			}
			s.mu.Lock()
			s.log = append(s.log, Request{Type: p.GetMetadata().GetType(), Conn: id, Body: p.GetBody().GetValue()})
			s.mu.Unlock()
		}
	}()
	<-c.end
	s.gone(id)
	return nil
}

// gone drops what a connection published.
func (s *Server) gone(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, id)
	for sv, by := range s.services {
		if _, held := by[id]; held {
			s.publish(sv, id, nil)
		}
	}
}

func (c *connection) push(kind string, b any) {
	c.send.Lock()
	defer c.send.Unlock()
	if !c.ended {
		_ = c.stream.Send(payload(kind, b)) // a stream that broke ends by itself
	}
}

func (s overHTTP) login(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.FormValue("username") != s.User || r.FormValue("password") != s.Password {
		http.Error(w, "unknown user!", http.StatusForbidden)
		return
	}
	s.logins++
	token := "token-" + strconv.Itoa(s.logins)
	s.tokens[token] = time.Now().Add(s.TokenTTL)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"accessToken": token, "tokenTtl": int64(s.TokenTTL.Seconds())})
}

// AddNamespace makes a namespace that is listed from then on.
func (s *Server) AddNamespace(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Namespaces[id] = id
}

func (s overHTTP) namespaces(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []map[string]string{}
	for id, name := range s.Namespaces {
		all = append(all, map[string]string{"namespace": id, "namespaceShowName": name})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"code": 200, "data": all})
}

// Config names a configuration; the tenant of the public namespace is empty.
type Config struct{ Tenant, Group, DataID string }

// configs are the configurations of a server.
type configs struct {
	mu    sync.Mutex
	texts map[Config]string
}

// Config returns the content of a configuration, empty if there is none.
func (s *configs) Config(c Config) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts[c]
}

// SetConfig makes a content that of a configuration, as another client does;
// an empty one removes it.
func (s *configs) SetConfig(c Config, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.texts, c)
	if content != "" {
		s.texts[c] = content
	}
}

// request reads or removes a configuration, or writes one that does not exist or has the
// sum that the request compares it with.
func (s *configs) request(kind string, b body) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Config{b.Tenant, b.Group, b.DataID}
	content, exists := s.texts[c]
	sum := md5.Sum([]byte(content)) //nolint:gosec // the sum that Nacos compares contents by
	switch {
	case kind == "ConfigQueryRequest" && !exists:
		return answer{ResultCode: failed, ErrorCode: noConfig, Message: "config data not exist"}
	case kind == "ConfigQueryRequest":
		return answer{ResultCode: ok, Content: content}
	case kind == "ConfigRemoveRequest":
		delete(s.texts, c)
	case exists && b.CasMd5 != "" && b.CasMd5 != hex.EncodeToString(sum[:]):
		return answer{ResultCode: failed, ErrorCode: failed, Message: "Cas publish fail, server md5 may have changed."}
	default:
		s.texts[c] = b.Content
	}
	return answer{ResultCode: ok}
}
