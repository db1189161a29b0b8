package nacos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/protobuf/types/known/anypb"
)

// clientVersion is the version that servers show for our connections, and by which they enable
// features.
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

// response is the part that every answer has, as rpc_response.Response of nacos-sdk-go.
type response struct {
	ResultCode int    `json:"resultCode"`
	ErrorCode  int    `json:"errorCode"`
	Success    bool   `json:"success"`
	Message    string `json:"message"`
}

func (r *response) head() *response { return r }

// An answer embeds response.
type answer interface{ head() *response }

// batchRequest is rpc_request.BatchInstanceRequest with encoded instances.
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

// decode decodes an answer into out. An answer without success is a *ResponseError, never a
// zero value.
func decode(op string, p *nacosgrpc.Payload, out answer) error {
	kind := p.GetMetadata().GetType()
	*out.head() = response{} // out may hold an earlier answer
	err := json.Unmarshal(p.GetBody().GetValue(), out)
	var part *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &part) {
		return fmt.Errorf("nacos %s: answer %s is not JSON: %w", op, kind, err)
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
		return push{}, fmt.Errorf("nacos push %s is not JSON: %w", p.GetMetadata().GetType(), err)
	}
	return push{kind: p.GetMetadata().GetType(), id: head.RequestID, body: body}, nil
}

// ack returns the answer to a push. A server closes a connection that does not answer.
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
		panic(err) // strings and numbers can always be encoded
	}
	return &nacosgrpc.Payload{Metadata: &nacosgrpc.Metadata{Type: kind}, Body: &anypb.Any{Value: body}}
}

// service returns the key and the content of a pushed service. Servers of both versions leave
// out the namespace.
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
