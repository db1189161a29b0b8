package nacos_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/nacos/nacostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const format = "providers"

// layout is a format whose services begin with "providers:".
type layout struct{}

func (layout) Scopes() []registry.Group { return []registry.Group{{Kind: format, Group: "DEFAULT_GROUP"}} }

func (layout) GroupOf(namespace, group, service string) (registry.Group, bool) {
	return registry.Group{Kind: format, Namespace: namespace, Group: group, Name: service}, strings.HasPrefix(service, "providers:")
}

var (
	greeter = registry.Group{Kind: format, Group: "DEFAULT_GROUP", Name: "providers:api.Greeter::"}
	mine    = metadata.NewMark("me", "mesh-to-nacos")
	theirs  = metadata.NewMark("another", "mesh-to-nacos")
)

func service(g registry.Group) nacostest.Service {
	return nacostest.Service{Namespace: g.Namespace, Group: g.Group, Name: g.Name}
}

func entry(g registry.Group, ip string, mark metadata.Mark, extra ...string) registry.Entry {
	in := metadata.NacosInstance{
		IP: ip, Port: 20000, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
		Metadata: map[string]string{"protocol": "tri", metadata.MarkKey: mark.String()},
	}
	for i := 0; i+1 < len(extra); i += 2 {
		in.Metadata[extra[i]] = extra[i+1]
	}
	return registry.Entry{Group: g, Key: in.Key(), Value: in.String()}
}

func change(g registry.Group, want ...registry.Entry) registry.Change {
	c := registry.Change{Group: g, Want: want}
	for _, e := range want {
		c.Put = append(c.Put, registry.Write{New: e})
	}
	return c
}

// A rig is a server in memory and a target that writes to it.
type rig struct {
	server *nacostest.Server
	client *nacos.Client
	target *nacos.Target
	rpc    *bufconn.Listener
	web    *bufconn.Listener
}

func start(t *testing.T, server *nacostest.Server, tune func(*nacos.Options)) *rig {
	t.Helper()
	r := &rig{server: server, rpc: bufconn.Listen(1 << 20), web: bufconn.Listen(1 << 20)}
	server.Serve(r.rpc, r.web)
	o := nacos.Options{
		Servers: []string{"http://nacos:8848"}, Log: slog.New(slog.DiscardHandler),
		Dialer: func(ctx context.Context, _, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":9848") {
				return r.rpc.DialContext(ctx)
			}
			return r.web.DialContext(ctx)
		},
	}
	if tune != nil {
		tune(&o)
	}
	client, err := nacos.New(o)
	if err != nil {
		t.Fatal(err)
	}
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: mine.Owner, Layouts: []nacos.Layout{layout{}}})
	if err != nil {
		t.Fatal(err)
	}
	r.client, r.target = client, target
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return r
}

func (r *rig) write(t *testing.T, want ...registry.Entry) {
	t.Helper()
	if err := r.target.Write(t.Context(), change(greeter, want...)); err != nil {
		t.Fatal(err)
	}
}

// visible returns what every client of the server sees of the greeter.
func (r *rig) visible() []string {
	var out []string
	for _, in := range r.server.Instances(service(greeter)) {
		out = append(out, in.Ip)
	}
	return out
}

func (r *rig) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := r.visible(); !slices.Equal(got, want) {
		t.Errorf("the server holds %v, want %v", got, want)
	}
}

func (r *rig) read(t *testing.T) []registry.Held {
	t.Helper()
	held, err := r.target.Read(t.Context(), greeter)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestTarget(t *testing.T) {
	bubble(t, "A01 a batch is the whole set, and nothing of it is lost on the way", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		want := []registry.Entry{entry(greeter, "10.0.0.1", mine, "weight", "100", "path", "api.Greeter"), entry(greeter, "10.0.0.2", mine)}
		r.write(t, want...)
		held := r.read(t)
		if len(held) != 2 {
			t.Fatalf("read %d entries, want 2", len(held))
		}
		for i, h := range held {
			if h.Entry != want[i] || h.Owner != mine.Owner || !h.Live {
				t.Errorf("read %+v\nwant %+v, ours and live", h, want[i])
			}
		}
		groups, err := r.target.Groups(t.Context())
		if err != nil || !slices.Equal(groups, []registry.Group{greeter}) {
			t.Errorf("groups %v, %v", groups, err)
		}
	})
	bubble(t, "A03 one of two goes, and the other never blinks", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine))
		r.write(t, entry(greeter, "10.0.0.2", mine))
		r.expect(t, "10.0.0.2")
		if n := len(r.server.Requests("InstanceRequest")); n != 0 {
			t.Errorf("%d requests that take everything back, want none", n)
		}
	})
	bubble(t, "A04 A44 ours go, and those of others stay", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		r.server.Set(service(greeter), "app", model.Instance{Ip: "10.9.9.9", Port: 1, Enable: true, Healthy: true, Ephemeral: true})
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1", "10.9.9.9")
		gone := registry.Change{Group: greeter, Delete: r.read(t)[:1]}
		if err := r.target.Write(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		r.expect(t, "10.9.9.9")
		if held := r.read(t); len(held) != 1 || held[0].Owner != "" || held[0].Live {
			t.Errorf("read %+v, want one of nobody's", held)
		}
	})
	bubble(t, "F55 one instance with 64 kB of metadata does not cost its neighbours", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		big := entry(greeter, "10.0.0.1", mine, "blob", strings.Repeat("x", 64<<10))
		err := r.target.Write(t.Context(), change(greeter, big, entry(greeter, "10.0.0.2", mine)))
		if !errors.Is(err, registry.ErrRefused) || !errors.Is(err, metadata.ErrNacosLimit) || !strings.Contains(err.Error(), "10.0.0.1:20000") {
			t.Errorf("got %v", err)
		}
		r.expect(t, "10.0.0.2")
	})
	bubble(t, "F54 a name that Nacos refuses is never sent", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		for _, name := range []string{"", "a b", "a@@b", "a\x00b", "名", strings.Repeat("a", 600)} {
			g := registry.Group{Kind: format, Group: "DEFAULT_GROUP", Name: name}
			if err := r.target.Write(t.Context(), change(g, entry(g, "10.0.0.1", mine))); !errors.Is(err, registry.ErrRefused) {
				t.Errorf("%.20q: %v", name, err)
			}
		}
		if n := len(r.server.Requests("BatchInstanceRequest")); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
	bubble(t, "A48 F29 a lost connection is told, and everything can be written once more", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Drop()
		<-r.target.Lost()
		r.expect(t)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1")
		if got := r.client.State(); got.Lost != 1 || !got.Connected {
			t.Errorf("state %+v", got)
		}
	})
	bubble(t, "A48 a server that wants the connection gone keeps what it holds until the next one wrote it", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Reset()
		<-r.target.Lost()
		r.expect(t, "10.0.0.1")
		if held := r.read(t); len(held) != 1 || held[0].Live {
			t.Errorf("read %+v, want one that is not live", held)
		}
		r.write(t, entry(greeter, "10.0.0.1", mine))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.expect(t, "10.0.0.1")
		if n := r.server.Connections(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
	bubble(t, "F25 a set that the server forgot is found missing and written again", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Forget()
		if held := r.read(t); len(held) != 0 {
			t.Fatalf("read %+v, want nothing", held)
		}
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1")
	})
	bubble(t, "A54 reads wait until the server has caught up with the last write", func(t *testing.T) {
		server := nacostest.NewServer()
		server.Lag = 600 * time.Millisecond
		r := start(t, server, nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.write(t, entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine))
		if held := r.read(t); len(held) != 2 {
			t.Errorf("read %d entries from a cache that lags, want 2", len(held))
		}
	})
	bubble(t, "F07 what is already published is not sent again", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		want := entry(greeter, "10.0.0.1", mine)
		r.write(t, want)
		if err := r.target.Write(t.Context(), registry.Change{Group: greeter, Want: []registry.Entry{want}}); err != nil {
			t.Fatal(err)
		}
		if n := len(r.server.Requests("BatchInstanceRequest")); n != 1 {
			t.Errorf("%d batches, want 1", n)
		}
	})
	bubble(t, "A44 an address that another owner publishes too is shown as theirs", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Set(service(greeter), "b", model.Instance{
			Ip: "10.0.0.1", Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
			Metadata: map[string]string{metadata.MarkKey: theirs.String()},
		})
		if held := r.read(t); len(held) != 1 || held[0].Owner != theirs.Owner {
			t.Errorf("read %+v", held)
		}
	})
}

func TestRefusalsAreErrors_F26(t *testing.T) {
	for name, tt := range map[string]struct {
		code    int
		want    error
		refused bool
	}{
		"F26 access revoked": {403, nacos.ErrDenied, true},
		"F26 throttled":      {503, nacos.ErrThrottled, false},
		"F26 over the limit": {-503, nacos.ErrThrottled, false},
		"F26 not ready":      {300, nacos.ErrNotReady, false},
		"F26 invalid":        {400, registry.ErrRefused, true},
	} {
		bubble(t, name, func(t *testing.T) {
			r := start(t, nacostest.NewServer(), nil)
			r.write(t, entry(greeter, "10.0.0.1", mine))
			r.server.Fail(func(q nacostest.Request) (int, string) {
				if q.Type == "HealthCheckRequest" {
					return 0, ""
				}
				return tt.code, "no\x1b[31m"
			})
			held, err := r.target.Read(t.Context(), greeter)
			if held != nil || !errors.Is(err, tt.want) || errors.Is(err, registry.ErrRefused) != tt.refused {
				t.Errorf("read: %v, %v", held, err)
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("control characters of the server in %q", err)
			}
			if groups, err := r.target.Groups(t.Context()); groups != nil || !errors.Is(err, tt.want) {
				t.Errorf("groups: %v, %v", groups, err)
			}
			if err := r.target.Write(t.Context(), change(greeter, entry(greeter, "10.0.0.2", mine))); !errors.Is(err, tt.want) {
				t.Errorf("write: %v", err)
			}
			r.expect(t, "10.0.0.1")
		})
	}
}

func TestLogin(t *testing.T) {
	withUser := func(o *nacos.Options) {
		o.Username, o.Password = "nacos", func() (string, error) { return "secret\n", nil }
	}
	server := func(ttl time.Duration) *nacostest.Server {
		s := nacostest.NewServer()
		s.User, s.Password, s.TokenTTL = "nacos", "secret", ttl
		return s
	}
	bubble(t, "F27 a token that lives ten seconds is renewed before it expires", func(t *testing.T) {
		r := start(t, server(10*time.Second), withUser)
		for range 60 {
			r.write(t, entry(greeter, "10.0.0.1", mine))
			time.Sleep(time.Second)
		}
		if n := r.server.Logins(); n < 6 || n > 12 {
			t.Errorf("%d logins in a minute", n)
		}
	})
	bubble(t, "F27 a token that was revoked is replaced within the same call", func(t *testing.T) {
		r := start(t, server(time.Hour), withUser)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		time.Sleep(2 * time.Second)
		r.server.Revoke()
		r.write(t, entry(greeter, "10.0.0.2", mine))
		r.expect(t, "10.0.0.2")
	})
	bubble(t, "a wrong password is one clear error and never an empty list", func(t *testing.T) {
		s := server(time.Hour)
		r := start(t, s, func(o *nacos.Options) {
			o.Username, o.Password = "nacos", func() (string, error) { return "wrong", nil }
		})
		groups, err := r.target.Groups(t.Context())
		if groups != nil || !errors.Is(err, nacos.ErrNotConnected) || !strings.Contains(err.Error(), "passwordFile") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%v, %v", groups, err)
		}
	})
}

func TestDeadConnectionIsNoticed_F23(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Fail(func(q nacostest.Request) (int, string) { return 500, "frozen" })
		time.Sleep(20 * time.Second)
		if r.client.State().Connected {
			t.Error("still taken for connected after four failed health checks")
		}
		time.Sleep(10 * time.Minute)
		if n := len(r.server.Requests("ServerCheckRequest")); n > 60 {
			t.Errorf("%d attempts to connect in ten minutes", n)
		}
		r.server.Fail(nil)
		time.Sleep(time.Minute)
		if !r.client.State().Connected {
			t.Error("not connected again")
		}
	})
}

func TestPushesAreAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Reset()
		time.Sleep(time.Second)
		if n := len(r.server.Requests("ConnectResetResponse")); n != 1 {
			t.Errorf("%d acknowledgements, want 1", n)
		}
	})
}

func TestOptionsNameWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		options nacos.Options
		want    string
	}{
		"no server":           {nacos.Options{}, "servers"},
		"not a URL":           {nacos.Options{Servers: []string{"127.0.0.1:8848"}}, "servers"},
		"port out of range":   {nacos.Options{Servers: []string{"http://a:65000"}}, "out of range"},
		"user, no password":   {nacos.Options{Servers: []string{"http://a"}, Username: "x"}, "passwordFile"},
		"scheme of the wrong": {nacos.Options{Servers: []string{"tcp://a:1"}}, "http://"},
	} {
		if _, err := nacos.New(tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
