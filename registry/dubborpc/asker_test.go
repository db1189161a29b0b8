package dubborpc_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dubborpc"
)

// provider starts a provider that returns one answer after the other, then repeats the
// last one, and counts the calls.
func provider(t *testing.T, answers ...[]byte) (address string, calls *atomic.Int32) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls = new(atomic.Int32)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); err != nil {
			return err
		}
		n := int(calls.Add(1))
		m := &emptypb.Empty{}
		m.ProtoReflect().SetUnknown(answers[min(n, len(answers))-1])
		return stream.SendMsg(m)
	}))
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("Serve = %v", err)
		}
	})
	return l.Addr().String(), calls
}

// document returns a MetadataInfoV2 with a service, or without services if it is empty.
func document(app, revision, service string) []byte {
	text := func(b []byte, n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	out := text(text(nil, 1, app), 2, revision)
	if service == "" {
		return out
	}
	one := text(text(text(nil, 1, service), 4, "tri"), 6, service)
	return text(out, 3, string(text(text(nil, 1, service), 2, string(one))))
}

func refTo(address string) metadata.Ref {
	return metadata.Ref{
		Group: registry.Group{Kind: "dubbo-application", Name: "shop"},
		Key:   "#service/tri://" + address + "?application=shop&revision=r1&version=2.0.0",
	}
}

var loopback = &naming.Reach{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

func TestClient_MatchingAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first []byte
		want  string // in the error
	}{
		"nothing":             {nil, "no service"},
		"no services":         {document("shop", "r1", ""), "no service"},
		"another application": {document("cart", "r1", "api.Cart"), `application "cart"`},
		"another revision":    {document("shop", "r2", "api.Shop"), `revision "r2"`},
		"no message":          {[]byte{0x1a, 0xff}, "decode response"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong, _ := provider(t, tt.first)
			right, calls := provider(t, tt.first, document("shop", "r1", "api.Shop"))
			a := dubborpc.New(loopback)
			if text, err := a.Ask(t.Context(), refTo(wrong)); err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, registry.ErrRefused) {
				t.Errorf("%q, %v; want %q, and that it may succeed later", text, err, tt.want)
			}
			if name == "no message" {
				return
			}
			if _, err := a.Ask(t.Context(), refTo(right)); err == nil {
				t.Error("the first answer was accepted")
			}
			for range 3 {
				if text, err := a.Ask(t.Context(), refTo(right)); err != nil || !strings.Contains(text, "api.Shop") {
					t.Errorf("%q, %v", text, err)
				}
			}
			if text, err := a.Ask(t.Context(), refTo(wrong)); err == nil {
				t.Errorf("the document of another provider was returned: %q", text)
			}
			if n := calls.Load(); n != 4 {
				t.Errorf("asked %d times, want 4", n)
			}
		})
	}
	a := dubborpc.New(nil)
	one, other := refTo("10.0.0.1:1"), refTo("10.0.0.2:1")
	if a.Question(one) == "" || a.Question(one) != a.Question(other) || a.Question(metadata.Ref{Key: "#metadata/r1"}) != "" {
		t.Errorf("%q and %q", a.Question(one), a.Question(other))
	}
}

func TestAsker_AnswerLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		service string
		refused bool
	}{
		"within the limit":                  {strings.Repeat("s", 60<<10), false}, // it has the name three times
		"larger as a response":              {strings.Repeat("s", 100<<10), true},
		"larger as a document":              {strings.Repeat("<", 20<<10), true},
		"larger than gRPC allows a message": {strings.Repeat("s", 3<<20), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := provider(t, document("shop", "r1", tt.service))
			text, err := dubborpc.New(loopback).Ask(t.Context(), refTo(address))
			if tt.refused != errors.Is(err, registry.ErrRefused) || tt.refused != (text == "") || tt.refused && !strings.Contains(err.Error(), "262144 bytes") {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		})
	}
}

func TestClient_ResolvedAddresses(t *testing.T) {
	t.Parallel()
	address, calls := provider(t, document("shop", "r1", "api.Shop"))
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1", "2130706433"}
	if own, err := os.Hostname(); err == nil { // a name that resolves to a loopback address on many machines
		if addresses, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", own); err == nil && len(addresses) == 1 && addresses[0].Unmap().IsLoopback() {
			hosts = append(hosts, own)
		}
	}
	for _, host := range hosts {
		if text, err := dubborpc.New(&naming.Reach{}).Ask(t.Context(), refTo(host+":"+port)); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("%s: %q, %v; want a refusal", host, text, err)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("our own loopback was called %d times", n)
	}
	if _, err := dubborpc.New(loopback).Ask(t.Context(), refTo(address)); err != nil {
		t.Errorf("Ask = %v, want nil", err)
	}
}
