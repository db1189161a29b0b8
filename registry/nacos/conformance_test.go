package nacos_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func groupN(n int) registry.Group {
	g := greeter
	g.Name = "providers:api.Service" + strconv.Itoa(n) + "::"
	return g
}

// marked makes entry i of group n in variant v with an owner's mark.
func marked(mark metadata.Mark) func(n, i, v int) registry.Entry {
	return func(n, i, v int) registry.Entry {
		return entry(groupN(n), fmt.Sprintf("10.%d.%d.%d", n, i/250, 1+i%250), mark, "variant", strconv.Itoa(v))
	}
}

// hostile makes an entry with a text in its metadata, both ways, and where a
// cluster may be called so, in its key.
func hostile(text string) registry.Entry {
	in := metadata.NacosInstance{
		IP: "10.0.0.1", Port: 20000, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
		Metadata: map[string]string{"text": text, "key " + text: "x", metadata.MarkKey: mine.String()},
	}
	in.Cluster = text
	if in.Check() != nil {
		in.Cluster = ""
	}
	return registry.Entry{Group: groupN(0), Key: in.Key(), Value: in.String()}
}

// TestTarget_Conformance runs the suite of all targets over real connections
// on loopback.
func TestTarget_Conformance(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]string{"without a login": "", "with a login, lists in pages": "nacos"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Target(t, func(t *testing.T) conformance.Fixture {
				t.Helper()
				return fixture(t, user)
			})
		})
	}
}

func fixture(t *testing.T, user string) conformance.Fixture {
	t.Helper()
	server := nacosfake.NewServer()
	server.Lag, server.User, server.Password = 100*time.Microsecond, user, "secret"
	r := start(t, server, func(o *nacos.Options) {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		if user != "" {
			server.PageLimit = 2
			o.Username, o.Password = user, func() (string, error) { return "secret", nil }
		}
	})
	target, err := nacos.NewTarget(r.client, nacos.TargetOptions{Owner: mine.Owner, Layouts: layouts(), ReadBack: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Fixture{
		Cut: func(*testing.T) {
			var once sync.Once
			server.Lose(func(q nacosfake.Request) bool {
				cut := false
				if q.Type == "BatchInstanceRequest" {
					once.Do(func() { cut = true; server.Drop() })
				}
				return cut
			})
		},
		Target: target, Owner: mine.Owner, Group: groupN, Entry: marked(mine), Foreign: marked(theirs), Hostile: hostile,
		Set: func(t *testing.T, e registry.Entry) {
			t.Helper()
			in, err := metadata.ParseNacosInstance(e.Value)
			if err != nil {
				t.Fatal(err)
			}
			server.Set(service(e.Group), "another", model.Instance{
				Ip: in.IP, Port: uint64(in.Port), Weight: in.Weight, Healthy: in.Healthy, Enable: in.Enabled,
				Ephemeral: in.Ephemeral, ClusterName: in.Cluster, Metadata: in.Metadata,
			})
			for !shows(t, target, e) {
				runtime.Gosched()
			}
		},
	}
}

// shows reports whether the server's reads have caught up with an entry.
func shows(t *testing.T, target registry.Target, e registry.Entry) bool {
	t.Helper()
	held, err := target.Read(t.Context(), e.Group)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(held, func(h registry.Held) bool { return h.Entry == e })
}
