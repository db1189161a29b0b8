package nacos

import (
	"testing"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// FuzzPayload shows that no answer and no push of a server is more than an
// error: it is read by nothing but decode, decodePush and notice.
func FuzzPayload(f *testing.F) {
	for _, seed := range [][2]string{
		{"QueryServiceResponse", `{"resultCode":200,"success":true,"serviceInfo":{"name":"a","hosts":[{"ip":"10.0.0.1","port":80,"metadata":{"k":"v"}}]}}`},
		{"NotifySubscriberRequest", `{"requestId":"1","serviceInfo":{"name":"a","groupName":"g","hosts":[{"ip":"\u0000","port":-1,"weight":1e308}],"lastRefTime":1}}`},
		{"ConnectResetRequest", `{"serverIp":"../../x","serverPort":"99999"}`},
		{"ClientDetectionRequest", `{}`},
		{"ErrorResponse", `{"resultCode":500,"errorCode":30000,"message":"\u001b[2J"}`},
		{"", `[[[[[[[[`},
		{"NotifySubscriberRequest", `{"serviceInfo":null}`},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		p := &nacosgrpc.Payload{Metadata: &nacosgrpc.Metadata{Type: kind}, Body: &anypb.Any{Value: body}}
		var out struct {
			response
			ServiceInfo struct {
				Hosts []instance `json:"hosts"`
			} `json:"serviceInfo"`
		}
		if err := decode("query", p, &out); err != nil && err.Error() == "" {
			t.Error("an error that says nothing")
		}
		pushed, err := decodePush(p)
		if err != nil {
			return
		}
		if ack := pushed.ack(); ack.GetMetadata().GetType() == "" {
			t.Errorf("push %q is acknowledged by nothing", kind)
		}
		_, info, err := pushed.notice()
		if err != nil {
			return
		}
		for _, in := range new(Source).read(info).instances {
			if in.err == nil && in.text == "" {
				t.Errorf("%+v", in)
			}
		}
	})
}

// FuzzLogin shows that no answer of the HTTP port is more than an error, or a
// token for a time that can be waited for, or namespaces.
func FuzzLogin(f *testing.F) {
	f.Add([]byte(`{"accessToken":"t","tokenTtl":18000}`))
	f.Add([]byte(`{"accessToken":"t","tokenTtl":9223372036854775807}`))
	f.Add([]byte(`{"accessToken":"t","tokenTtl":-1}`))
	f.Add([]byte(`{"accessToken":"a\r\nb"}`))
	f.Add([]byte(`<html>`))
	f.Add([]byte(`{"code":0,"data":[{"namespace":"public","namespaceShowName":"public"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		token, life, err := readLogin(body)
		if err == nil && (token == "" || life <= 0 || life > maxLife) {
			t.Errorf("%q: %q for %s", body, token, life)
		}
		all, err := readNamespaces(body)
		if missing := among(append(all, namespace{ID: "ours"}), "ours"); err == nil && missing != nil {
			t.Errorf("%q: %v", body, missing)
		}
	})
}
