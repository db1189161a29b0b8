package nacos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// A view is what a server holds when it is asked.
type view struct {
	names []string
	count int // reported; 0: as many as there are
}

// shifting is a server whose first of six services is deleted, and another
// comes, before each request.
func shifting(requests int) []view {
	out := make([]view, requests)
	for i := range out {
		for j := range 6 {
			out[i].names = append(out[i].names, fmt.Sprintf("s%03d", i+j))
		}
	}
	return out
}

// TestListAll: a list is all of the names or an error, whatever happens to
// the services between two pages.
func TestListAll(t *testing.T) {
	t.Parallel()
	six := strings.Fields("a b c d e f")
	still := func(names ...string) []view { return []view{{names: names}} }
	for name, tt := range map[string]struct {
		limit int    // of a page; 0: none
		views []view // what each request meets; the last one continues
		want  []string
		fails bool
	}{
		"nothing is whole":                                  {views: still()},
		"one page":                                          {views: still(six...), want: six},
		"pages, the last one shorter":                       {limit: 4, views: still(six...), want: six},
		"pages, the last one full":                          {limit: 3, views: still(six...), want: six},
		"one page with less than it reports":                {views: []view{{six[:5], 6}}, fails: true},
		"one page with more than it reports":                {views: []view{{six, 5}}, fails: true},
		"pages that end before the count":                   {limit: 3, views: []view{{six, 7}}, fails: true},
		"a name twice in the place of another":              {views: []view{{strings.Fields("a b c d e a"), 6}}, fails: true},
		"a service is deleted between two pages":            {limit: 3, views: []view{{names: six}, {names: six[1:]}}, want: six[1:]},
		"a service comes between two pages":                 {limit: 3, views: []view{{names: six[1:]}, {names: six}}, want: six},
		"one is deleted, one is added, and d is on no page": {limit: 3, views: []view{{names: six}, {names: strings.Fields("b c d e f g")}}, want: strings.Fields("b c d e f g")},
		"one is deleted and one added before each page":     {limit: 3, views: shifting(40), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			names, err := listAll(func(number, size int) (page, error) {
				v := tt.views[min(asked, len(tt.views)-1)]
				asked++
				most := size
				if tt.limit > 0 {
					most = min(most, tt.limit)
				}
				from := min((number-1)*size, len(v.names))
				p := page{Count: len(v.names), ServiceNames: slices.Clone(v.names[from:min(from+most, len(v.names))])}
				if v.count != 0 {
					p.Count = v.count
				}
				return p, nil
			})
			if (err != nil) != tt.fails || err == nil && !slices.Equal(names, tt.want) {
				t.Errorf("%q, %v; want %q", names, err, tt.want)
			}
			if asked > 12 {
				t.Errorf("%d requests, want at most 12", asked)
			}
		})
	}
	if names, err := listAll(func(int, int) (page, error) { return page{}, errors.ErrUnsupported }); names != nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("listAll() of a server that fails = %q, %v, want its error", names, err)
	}
}

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
			t.Errorf("decode() = %v, want an error with a text", err)
		}
		pushed, err := decodePush(p)
		if err != nil {
			return
		}
		if ack := pushed.ack(); ack.GetMetadata().GetType() == "" {
			t.Errorf("ack() of push %q has no type, want one", kind)
		}
		_, info, err := pushed.service()
		if err != nil {
			return
		}
		for _, in := range newSnapshot(info).instances {
			if in.err == nil && in.text == "" {
				t.Errorf("instance %+v, want a text or an error", in)
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
		token, validity, err := readLogin(body)
		if err == nil && (token == "" || validity <= 0 || validity > maxValidity) {
			t.Errorf("readLogin(%q) = %q, %s, want a token and how long it is valid", body, token, validity)
		}
		all, err := readNamespaces(body)
		if missing := findNamespace(append(all, namespace{ID: "ours"}), "ours"); err == nil && missing != nil {
			t.Errorf("find() in %q = %v, want nil", body, missing)
		}
	})
}
