package nacos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// clientVersion is what servers show for our connections. They enable features
// by it.
const clientVersion = "Nacos-Go-Client:v2.3.2"

func encode(r rpc_request.IRequest, headers map[string]string, clientIP string) (*nacosgrpc.Payload, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.GetRequestType(), err)
	}
	all := maps.Clone(r.GetHeaders())
	if all == nil {
		all = make(map[string]string, len(headers))
	}
	maps.Copy(all, headers)
	return &nacosgrpc.Payload{
		Metadata: &nacosgrpc.Metadata{Type: r.GetRequestType(), Headers: all, ClientIp: clientIP},
		Body:     &anypb.Any{Value: body},
	}, nil
}

// response is the part that every answer has; source: nacos-sdk-go's
// rpc_response.Response.
type response struct {
	ResultCode int    `json:"resultCode"`
	ErrorCode  int    `json:"errorCode"`
	Success    bool   `json:"success"`
	Message    string `json:"message"`
}

func (r *response) head() *response { return r }

// An answer embeds response.
type answer interface{ head() *response }

// batchRequest is rpc_request.BatchInstanceRequest with instances that are
// encoded already.
type batchRequest struct {
	*rpc_request.NamingRequest

	Type      string            `json:"type"`
	Instances []json.RawMessage `json:"instances"`
}

// GetRequestType implements rpc_request.IRequest.
func (*batchRequest) GetRequestType() string { return "BatchInstanceRequest" }

// A serviceAnswer is an answer with the instances of a service.
type serviceAnswer struct {
	response

	ServiceInfo *model.Service `json:"serviceInfo"`
}

// decode reads an answer into out. An answer without success is a
// *ResponseError, never a zero value.
func decode(op string, p *nacosgrpc.Payload, out answer) error {
	kind := p.GetMetadata().GetType()
	*out.head() = response{} // of an earlier answer
	err := json.Unmarshal(p.GetBody().GetValue(), out)
	var part *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &part) {
		return fmt.Errorf("nacos %s: answer %s is no JSON: %w", op, kind, err)
	}
	head := out.head()
	if !head.Success || head.ResultCode != 200 || kind == "ErrorResponse" {
		return &ResponseError{Op: op, ResultCode: head.ResultCode, ErrorCode: head.ErrorCode, Message: head.Message}
	}
	if err != nil {
		return fmt.Errorf("nacos %s: answer %s: %w", op, kind, err)
	}
	return nil
}

// A push is a message that a server sends without a request.
type push struct {
	kind string
	id   string
	body []byte
}

func decodePush(p *nacosgrpc.Payload) (push, error) {
	var head struct {
		RequestID string `json:"requestId"`
	}
	body := p.GetBody().GetValue()
	if err := json.Unmarshal(body, &head); err != nil {
		return push{}, fmt.Errorf("nacos push %s is no JSON: %w", p.GetMetadata().GetType(), err)
	}
	return push{kind: p.GetMetadata().GetType(), id: head.RequestID, body: body}, nil
}

// ack returns the answer to a push. A server closes connections that do not
// answer.
func (p push) ack() *nacosgrpc.Payload {
	kinds := map[string]string{
		"NotifySubscriberRequest": "NotifySubscriberResponse",
		"ClientDetectionRequest":  "ClientDetectionResponse",
		"ConnectResetRequest":     "ConnectResetResponse",
		"SetupAckRequest":         "SetupAckResponse",
	}
	kind, ok := kinds[p.kind]
	if !ok {
		kind = "Response"
	}
	body, err := json.Marshal(struct {
		response
		RequestID string `json:"requestId"`
	}{response{ResultCode: 200, Success: true}, p.id})
	if err != nil {
		panic(err) // of strings and numbers alone
	}
	return &nacosgrpc.Payload{Metadata: &nacosgrpc.Metadata{Type: kind}, Body: &anypb.Any{Value: body}}
}

// service returns the service that a push is about, and what it holds. Servers
// of both versions leave out the namespace.
func (p push) service() (serviceKey, *model.Service, error) {
	var body struct {
		ServiceInfo *model.Service `json:"serviceInfo"`
	}
	if err := json.Unmarshal(p.body, &body); err != nil {
		return serviceKey{}, nil, fmt.Errorf("push %s: %w", p.kind, err)
	}
	if body.ServiceInfo == nil {
		return serviceKey{}, nil, fmt.Errorf("push %s: no serviceInfo", p.kind)
	}
	name := strings.TrimPrefix(body.ServiceInfo.Name, body.ServiceInfo.GroupName+"@@")
	return serviceKey{group: body.ServiceInfo.GroupName, name: name}, body.ServiceInfo, nil
}

// The error codes that callers decide by; source:
// com.alibaba.nacos.api.exception.NacosException.
const (
	codeInvalidParam = 400
	codeNoRight      = 403
	codeThreshold    = 503
	codeClientLimit  = -503
	codeUnregistered = 301
	codeNotReady     = 300
)

// Errors of a Client that callers distinguish with errors.Is.
var (
	ErrNotConnected       = errors.New("no connection to any Nacos server")
	ErrDenied       error = accessDenied{}
	ErrThrottled          = errors.New("throttled by the server")
	ErrNotReady           = errors.New("server not ready")
)

// accessDenied is the type of ErrDenied, for those who know no registry apart.
type accessDenied struct{}

// Error implements error.
func (accessDenied) Error() string { return "access denied" }

// Denied says that the registry refused the credentials.
func (accessDenied) Denied() bool { return true }

// A ResponseError is a server's answer without success.
type ResponseError struct {
	Op         string // the request type
	ResultCode int
	ErrorCode  int
	Message    string
}

// Error returns the server's message with its codes and, if there is one, the
// remedy.
func (e *ResponseError) Error() string {
	text := fmt.Sprintf("nacos %s: %q (result %d, error %d)", e.Op, clip(e.Message), e.ResultCode, e.ErrorCode)
	switch {
	case strings.Contains(e.Message, "is persistent service"):
		text += ": Nacos holds persistent or ephemeral instances under one name, and the bridge's are ephemeral: " +
			"have the others register ephemerally, or give the format another group or the service another name"
	case errors.Is(e, ErrDenied):
		text += ": check username and passwordFile of the registry, and the user's permission for the namespace"
	}
	return text
}

// Unwrap returns the sentinels of the code.
func (e *ResponseError) Unwrap() []error {
	switch e.ErrorCode {
	case codeNoRight:
		return []error{ErrDenied, registry.ErrRefused}
	case codeInvalidParam:
		return []error{registry.ErrRefused}
	case codeThreshold, codeClientLimit:
		return []error{ErrThrottled}
	case codeNotReady, codeUnregistered:
		return []error{ErrNotReady}
	default:
		return nil
	}
}

// clip bounds a server's text before it is put into an error.
func clip(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// An asker sends requests: a connection, or a Client over its current one.
type asker interface {
	ask(ctx context.Context, r rpc_request.IRequest, out answer) error
}

// publicNamespace is the id of the namespace that a configuration leaves empty.
// All clients send it. To a server an empty id is another namespace, which
// nobody reads.
const publicNamespace = "public"

func onWire(namespace string) string { return cmp.Or(namespace, publicNamespace) }

func instancesOf(all []model.Instance) []metadata.NacosInstance {
	list := make([]metadata.NacosInstance, 0, len(all))
	for _, m := range all {
		list = append(list, fromModel(m))
	}
	return list
}

func fromModel(m model.Instance) metadata.NacosInstance {
	return metadata.NacosInstance{
		IP: m.Ip, Port: uint16(m.Port), Weight: m.Weight, Healthy: m.Healthy, Enabled: m.Enable, //nolint:gosec // a port
		Ephemeral: m.Ephemeral, Cluster: m.ClusterName, Metadata: m.Metadata,
	}
}

// query reads what a service holds, whoever registered it; nothing if there is
// no such service. The server answers from a cache that follows a write within
// a second.
func query(ctx context.Context, over asker, k serviceKey) (*model.Service, error) {
	return serviceOf(ctx, over, rpc_request.NewServiceQueryRequest(onWire(k.namespace), k.name, k.group, "", false, 0))
}

// subscribe asks as query does, and for pushes of every change over the same
// connection. It may be repeated.
func subscribe(ctx context.Context, over asker, k serviceKey) (*model.Service, error) {
	return serviceOf(ctx, over, rpc_request.NewSubscribeServiceRequest(onWire(k.namespace), k.name, k.group, "", true))
}

// queryHealthy reads the healthy instances of a service. The health that other answers
// show is not its true one while the service is protected: if no larger share of the
// instances is healthy than its protection threshold, they show all of them as healthy.
// Servers before 2.0.4 do so here as well.
func queryHealthy(ctx context.Context, over asker, k serviceKey) (*model.Service, error) {
	return serviceOf(ctx, over, rpc_request.NewServiceQueryRequest(onWire(k.namespace), k.name, k.group, "", true, 0))
}

func unsubscribe(ctx context.Context, over asker, k serviceKey) error {
	return over.ask(ctx, rpc_request.NewSubscribeServiceRequest(onWire(k.namespace), k.name, k.group, "", false), &response{})
}

func serviceOf(ctx context.Context, over asker, r rpc_request.IRequest) (*model.Service, error) {
	var out serviceAnswer
	if err := over.ask(ctx, r, &out); err != nil {
		return nil, err
	}
	if out.ServiceInfo == nil {
		return nil, fmt.Errorf("nacos %s: the answer holds no serviceInfo", r.GetRequestType())
	}
	return out.ServiceInfo, nil
}

// A page is a part of a list of services.
type page struct {
	response

	Count        int      `json:"count"` // of all pages
	ServiceNames []string `json:"serviceNames"`
}

func listNames(ctx context.Context, over asker, namespace, group string) ([]string, error) {
	return listAll(func(number, size int) (page, error) {
		var p page
		err := over.ask(ctx, rpc_request.NewServiceListRequest(onWire(namespace), "", group, number, size, ""), &p)
		return p, err
	})
}

// listAll returns the names of all services. It asks for one page, because a
// server sorts everything anew for each. If the server sends fewer names, it
// asks for the rest in pages of that size. One page is complete if it has as many
// different names as it counts. Several are complete only if a second reading
// shows the same: a service that goes between two of them moves another to a
// page that was read before, and one that comes hides that in the count.
func listAll(ask func(number, size int) (page, error)) ([]string, error) {
	const tries, all = 4, 1_000_000
	var before []string
	n := 0
	for range tries {
		names, pages, err := listOnce(ask, all)
		if err != nil {
			return nil, err
		}
		n = len(names)
		if pages == 1 || pages > 1 && slices.Equal(names, before) {
			return names, nil
		}
		before = nil
		if pages > 1 {
			before = names
		}
	}
	return nil, fmt.Errorf("nacos ServiceListRequest: %d services reported, and not as many as the server counts, or others each time: a partial list is not used", n)
}

// listOnce reads all pages, and returns the names and the number of pages; 0 if
// they are not complete.
func listOnce(ask func(number, size int) (page, error), size int) ([]string, int, error) {
	first, err := ask(1, size)
	if err != nil {
		return nil, 0, err
	}
	names := first.ServiceNames
	seen := make(map[string]struct{}, len(names))
	for number, p := 1, first; ; {
		for _, name := range p.ServiceNames {
			seen[name] = struct{}{}
		}
		switch {
		case len(seen) != len(names), len(names) > first.Count, len(p.ServiceNames) == 0 && len(names) < first.Count:
			return names, 0, nil
		case len(names) == first.Count:
			return names, number, nil
		}
		number++
		if p, err = ask(number, len(first.ServiceNames)); err != nil {
			return nil, 0, err
		}
		names = append(names, p.ServiceNames...)
	}
}
