package generator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/generator"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

const (
	entries   = "networking.istio.io/v1/ServiceEntry"
	workloads = "networking.istio.io/v1/WorkloadEntry"

	interval = 5 * time.Second
)

// bed is an istiod in memory, and what a reader reports of it.
type bed struct {
	*istiodfake.Server

	mu          sync.Mutex
	reported    []debug.Snapshot
	asked       []debug.Observation
	unreachable error // why no connection is established; nil: it is
	open        []net.Conn
}

// read runs a test in virtual time against a reader that has read once.
func read(t *testing.T, name string, fill func(*istiodfake.Server), test func(t *testing.T, b *bed), change ...func(*generator.Options)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := &bed{Server: istiodfake.NewServer()}
			fill(b.Server)
			b.start(t, change)
			synctest.Wait()
			test(t, b)
		})
	})
}

func (b *bed) start(t *testing.T, change []func(*generator.Options)) {
	t.Helper()
	listener, server := bufconn.Listen(1<<16), grpc.NewServer(istiodfake.ServerOptions()...)
	b.Register(server)
	o := generator.Options{
		Address: "istiod:15012", Node: &core.Node{Id: "router~10.0.0.9~xds-bridge-0.istio-system~istio-system.svc.cluster.local"},
		Keys: kube.Keys{Annotation: kube.DefaultKeys}, Interval: interval, Timeout: 2 * time.Second, MaxBytes: 1 << 20,
		Dial: func() (grpc.ClientConnInterface, func(), error) {
			conn, err := grpc.NewClient("passthrough:///istiod", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					b.mu.Lock()
					defer b.mu.Unlock()
					if b.unreachable != nil {
						return nil, b.unreachable
					}
					conn, err := listener.DialContext(ctx)
					b.open = append(b.open, conn)
					return conn, err
				}))
			return conn, func() { _ = conn.Close() }, err
		},
		Observe: func(o debug.Observation) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked = append(b.asked, o)
		},
	}
	for _, c := range change {
		c(&o)
	}
	reader, err := generator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(listener) })
	group.Go(func() {
		if err := reader.Run(ctx, b.report); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		server.Stop()
		group.Wait()
	})
}

func (b *bed) report(s debug.Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reported = append(b.reported, s)
}

// last returns the last report, and the number of reports.
func (b *bed) last() (debug.Snapshot, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.reported) == 0 {
		return debug.Snapshot{}, 0
	}
	return b.reported[len(b.reported)-1], len(b.reported)
}

// expect compares the keys that were reported last, each as KEY@HOST:PORT.
func (b *bed) expect(t *testing.T, want ...string) debug.Snapshot {
	t.Helper()
	s, _ := b.last()
	var got []string
	for key, addresses := range s.Mapping.All() {
		for _, a := range addresses {
			got = append(got, key.String()+"@"+a.String())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v; %v", got, want, s.Err)
	}
	return s
}

// next lets one more reading happen.
func next() {
	time.Sleep(interval + 3*time.Second)
	synctest.Wait()
}

// object is one as istiod reports it, with an annotation of keys.
func object(name, keys string, spec proto.Message) *mcpv1.Resource {
	body, err := anypb.New(spec)
	if err != nil {
		panic(err) // a constant of the test
	}
	m := &mcpv1.Metadata{Name: name}
	if keys != "" {
		m.Annotations = map[string]string{kube.DefaultKeys: keys, "comment": "hello"}
	}
	return &mcpv1.Resource{Metadata: m, Body: body}
}

func entry(host string, selector map[string]string) *networking.ServiceEntry {
	s := &networking.ServiceEntry{
		Hosts: []string{host}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: 20880, Name: "tcp-dubbo", Protocol: "TCP"}},
	}
	if selector != nil {
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: selector}
	}
	return s
}

// pay puts a ServiceEntry with keys into the mesh, and one without.
func pay(keys string) func(*istiodfake.Server) {
	return func(s *istiodfake.Server) {
		s.SetConfig(entries, "shop/pay", object("shop/pay", keys, entry("pay.shop", nil)))
		s.SetConfig(entries, "default/synthetic-kubernetes", object("default/synthetic-kubernetes", "", entry("kubernetes.default.svc.cluster.local", nil)))
	}
}

const payKey = "providers:api.Pay::@pay.shop:20880"

func TestReader(t *testing.T) {
	t.Parallel()
	read(t, "keys appear, change and go", pay("api.Pay"), func(t *testing.T, b *bed) {
		if s := b.expect(t, payKey); !s.Complete || s.Err != nil || s.Unread != nil || len(s.Replicas) != 1 || !s.Replicas[0].Answered {
			t.Errorf("reported %+v", s)
		}
		pay("providers:api.Pay:1.0:, api.Refund@20880")(b.Server)
		next()
		b.expect(t, "providers:api.Pay:1.0:@pay.shop:20880", "providers:api.Refund::@pay.shop:20880")
		pay("")(b.Server)
		next()
		b.expect(t)
		pay("api.Pay")(b.Server)
		next()
		b.expect(t, payKey)
		b.Remove(entries, "shop/pay")
		next()
		b.expect(t)
	})
	read(t, "a WorkloadEntry has keys of what selects it, a Service of Kubernetes too", func(s *istiodfake.Server) {
		selector := map[string]string{"app": "stock"}
		s.SetConfig(entries, "shop/stock", object("shop/stock", "", entry("stock.shop", selector)))
		s.SetConfig(entries, "shop/synthetic-stock", object("shop/synthetic-stock", "", entry("stock.shop.svc.cluster.local", selector)))
		s.SetConfig(entries, "elsewhere/stock", object("elsewhere/stock", "", entry("stock.elsewhere", selector)))
		s.SetConfig(workloads, "shop/stock-1", object("shop/stock-1", "api.Stock", &networking.WorkloadEntry{Address: "10.0.0.1", Labels: selector}))
	}, func(t *testing.T, b *bed) {
		b.expect(t, "providers:api.Stock::@stock.shop:20880", "providers:api.Stock::@stock.shop.svc.cluster.local:20880")
		b.Remove(workloads, "shop/stock-1")
		next()
		b.expect(t)
	})
	read(t, "an istiod before 1.24 knows only v1alpha3", func(s *istiodfake.Server) {
		s.SetConfig("networking.istio.io/v1alpha3/ServiceEntry", "shop/pay", object("shop/pay", "api.Pay", entry("pay.shop", nil)))
	}, func(t *testing.T, b *bed) { b.expect(t, payKey) })
	read(t, "of some namespaces", pay("api.Pay"), func(t *testing.T, b *bed) { b.expect(t) },
		func(o *generator.Options) { o.Namespaces = []string{"default"} })
	read(t, "a key that cannot be read is reported", pay("api.Pay@metrics"), func(t *testing.T, b *bed) {
		if s := b.expect(t); len(s.Skipped) != 1 || !strings.Contains(s.Skipped[0].Error(), "serviceentry shop/pay") {
			t.Errorf("skipped %v", s.Skipped)
		}
	})
	read(t, "a steady state reports nothing, and leaves no stream open", pay("api.Pay"), func(t *testing.T, b *bed) {
		time.Sleep(10 * interval)
		synctest.Wait()
		if _, n := b.last(); n != 1 || b.Streams() < 10 || len(b.Connections()) != 0 {
			t.Errorf("reported %d times over %d streams, %d of them open, want once, 10 and 0", n, b.Streams(), len(b.Connections()))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if o := b.asked[0]; o.Query != generator.Query || o.Bytes == 0 || o.Err != nil || o.Replica != "istiod:15012" {
			t.Errorf("observation %+v, want a successful one of istiod:15012", o)
		}
	})
}

func TestReader_Unreadable(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]struct {
		err  error
		want []string
	}{
		"without an identity":  {status.Error(codes.Unauthenticated, "the api generator requires an authenticated control-plane identity"), []string{"the api generator at istiod:15012", "15012", "tokenFile", "root namespace"}},
		"of another namespace": {status.Error(codes.PermissionDenied, "the api generator is restricted to the control-plane (root) namespace"), []string{"root namespace", "node.namespace", "ENABLE_XDS_API_GENERATOR_AUTH=false"}},
		"not ready":            {status.Error(codes.Unavailable, "server is not ready"), []string{"check that istiod runs"}},
	} {
		read(t, name, pay("api.Pay"), func(t *testing.T, b *bed) {
			b.Refuse(refusal.err)
			next()
			s := b.expect(t, payKey)
			if s.Err == nil || !s.Complete {
				t.Fatalf("reported %+v", s)
			}
			for _, text := range refusal.want {
				if !strings.Contains(s.Err.Error(), text) {
					t.Errorf("Err = %v, want one with %q", s.Err, text)
				}
			}
			b.Refuse(nil)
			pay("api.Refund")(b.Server)
			next()
			if s := b.expect(t, "providers:api.Refund::@pay.shop:20880"); s.Err != nil {
				t.Errorf("Err = %v, want nil", s.Err)
			}
		})
	}
	read(t, "away for an hour", pay("api.Pay"), func(t *testing.T, b *bed) {
		b.cut(errors.New("connection refused"))
		time.Sleep(time.Hour)
		b.causes(t, debug.Unreachable, payKey)
		b.cut(errors.New("no route to host"))
		next()
		if s, _ := b.last(); !strings.Contains(fmt.Sprint(s.Err), "no route to host") {
			t.Errorf("reported %v, want the present error", s.Err)
		}
		b.cut(nil)
		next()
		if s := b.expect(t, payKey); s.Err != nil {
			t.Errorf("Err = %v, want nil", s.Err)
		}
	})
	read(t, "refused at first", func(s *istiodfake.Server) {
		pay("api.Pay")(s)
		s.Refuse(status.Error(codes.PermissionDenied, "no"))
	}, func(t *testing.T, b *bed) {
		if s := b.expect(t); s.Complete || s.Err == nil {
			t.Errorf("reported %+v", s)
		}
		b.Refuse(nil)
		next()
		b.expect(t, payKey)
	})
	read(t, "no answer in time", pay("api.Pay"), func(t *testing.T, b *bed) {
		b.Mute(workloads)
		pay("api.Refund")(b.Server)
		next()
		b.causes(t, debug.Slow, payKey)
	})
	read(t, "an answer that is too large", pay("api.Pay"), func(t *testing.T, b *bed) {
		b.SetConfig(entries, "shop/large", object("shop/large", strings.Repeat("x", 2<<20), entry("large.shop", nil)))
		next()
		b.causes(t, debug.TooLarge, payKey)
	})
	read(t, "an istiod that is empty all at once", pay("api.Pay"), func(t *testing.T, b *bed) {
		b.Remove(entries, "shop/pay", "default/synthetic-kubernetes")
		next()
		b.causes(t, debug.Truncated, payKey)
	})
	read(t, "a spec that cannot be read", pay("api.Pay"), func(t *testing.T, b *bed) {
		broken := object("shop/pay", "api.Refund", entry("pay.shop", nil))
		broken.Body.Value = []byte{0xff}
		b.SetConfig(entries, "shop/pay", broken)
		b.SetConfig(entries, "shop/other", object("shop/other", "api.Other", entry("other.shop", nil)))
		next()
		if s := b.expect(t, payKey, "providers:api.Other::@other.shop:20880"); s.Unread == nil || s.Err != nil {
			t.Errorf("reported %+v", s)
		}
		pay("api.Refund")(b.Server)
		next()
		if s := b.expect(t, "providers:api.Refund::@pay.shop:20880", "providers:api.Other::@other.shop:20880"); s.Unread != nil {
			t.Errorf("Unread = %v, want nil", s.Unread)
		}
	})
	for name, odd := range map[string]*mcpv1.Resource{
		"an object without a name":      object("", "api.Refund", entry("refund.shop", nil)),
		"an object without a namespace": object("pay", "api.Refund", entry("refund.shop", nil)),
	} {
		read(t, name, pay("api.Pay"), func(t *testing.T, b *bed) {
			b.Remove(entries, "shop/pay")
			b.SetConfig(entries, "shop/odd", odd)
			next()
			if s := b.expect(t, payKey); s.Unread == nil {
				t.Error("Unread = nil, want why the object cannot be read")
			}
			b.Remove(entries, "shop/odd")
			next()
			b.expect(t)
		})
	}
	read(t, "resources of another type", pay("api.Pay"), func(t *testing.T, b *bed) {
		b.Alter(func(a *istiodfake.Answer) {
			for i, r := range a.Resources {
				a.Resources[i] = &discovery.Resource{Name: r.GetName(), Resource: &anypb.Any{TypeUrl: "type.googleapis.com/other", Value: r.GetResource().GetValue()}}
			}
		})
		next()
		if s := b.expect(t, payKey); s.Unread == nil {
			t.Error("Unread = nil, want why they cannot be read")
		}
	})
}

// cut ends every connection, and lets none be established as long as there is a reason.
func (b *bed) cut(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreachable = why
	for _, c := range b.open {
		_ = c.Close()
	}
	b.open = nil
}

// causes expects an error with a cause, and the keys that were known before.
func (b *bed) causes(t *testing.T, want debug.Cause, keys ...string) {
	t.Helper()
	s := b.expect(t, keys...)
	if e, ok := errors.AsType[*debug.Error](s.Err); !ok || e.Cause != want || e.Remedy() == "" {
		t.Errorf("error %v, want one of cause %q", s.Err, want)
	}
}

// TestRecorded reads what an istiod 1.31 reported, with Services of Kubernetes.
func TestRecorded(t *testing.T) {
	t.Parallel()
	fill := func(s *istiodfake.Server) {
		for url, file := range map[string]string{entries: "serviceentries", workloads: "workloadentries"} {
			for name, m := range recorded(t, file) {
				s.SetConfig(url, name, m)
			}
		}
	}
	read(t, "by an annotation and a label", fill, func(t *testing.T, b *bed) {
		s := b.expect(t, "providers:x::@sel.shop.svc.cluster.local:20880")
		if len(s.Skipped) != 1 || !strings.Contains(s.Skipped[0].Error(), "names no port, and its host has 3") {
			t.Errorf("skipped %v", s.Skipped)
		}
	}, func(o *generator.Options) { o.Keys = kube.Keys{Annotation: "dubbo.metadata", Label: "registry"} })
}

func recorded(t *testing.T, file string) map[string]*mcpv1.Resource {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("testdata/%s.json", file))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]*mcpv1.Resource)
	for name, one := range all {
		out[name] = new(mcpv1.Resource)
		if err := protojson.Unmarshal(one, out[name]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
