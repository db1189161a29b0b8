package nacos

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// The result and error codes of a server.
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

	Tenant  string `json:"tenant"` // this and the following fields: of a configuration
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

// Request is a request that the server received.
type Request struct {
	Type  string
	Conn  string
	Body  []byte
	Token string
}

// Requests returns the received requests of a type, in order.
func (s *Server) Requests(kind string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.log), func(r Request) bool { return r.Type != kind })
}

// RequestCount returns the number of received requests.
func (s *Server) RequestCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

func payload(kind string, body any) *nacosgrpc.Payload {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // plain data can always be encoded
	}
	return &nacosgrpc.Payload{Metadata: &nacosgrpc.Metadata{Type: kind}, Body: &anypb.Any{Value: b}}
}
