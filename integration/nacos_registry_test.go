package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// nacosLayout is a format whose services begin with "providers:".
type nacosLayout struct{}

func (nacosLayout) Scopes() []registry.Group { return []registry.Group{{Group: "DEFAULT_GROUP"}} }

func (nacosLayout) GroupOf(namespace, group, service string) (registry.Group, bool) {
	return registry.Group{Kind: "providers", Namespace: namespace, Group: group, Name: service}, strings.HasPrefix(service, "providers:")
}

func nacosGroup(name string) registry.Group {
	return registry.Group{Kind: "providers", Group: "DEFAULT_GROUP", Name: "providers:" + name + "::"}
}

func nacosEntry(g registry.Group, n int, owner string) registry.Entry {
	in := metadata.NacosInstance{
		IP: fmt.Sprintf("10.0.%d.%d", n/250, n%250), Port: 20000, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
		Metadata: map[string]string{"protocol": "tri", metadata.MarkKey: metadata.NewMark(owner, "b").String()},
	}
	return registry.Entry{Group: g, Key: in.Key(), Value: in.String()}
}

func nacosChange(g registry.Group, entries ...registry.Entry) registry.Change {
	c := registry.Change{Group: g, Want: entries}
	for _, e := range entries {
		c.Put = append(c.Put, registry.Write{New: e})
	}
	return c
}

// nacosTarget connects to a server until the test ends or the returned
// function is called.
func nacosTarget(t *testing.T, o nacos.Options) (*nacos.Target, context.CancelFunc) {
	t.Helper()
	client, stop := runNacosClient(t, o)
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: metadata.NewMark("me", "b").Owner, Layouts: []nacos.Layout{nacosScope{o.Namespace}}})
	if err != nil {
		t.Fatal(err)
	}
	return target, stop
}

// at is how our client connects to a server.
func at(server *harness.Nacos) nacos.Options {
	return nacos.Options{Servers: []string{server.URL}, Namespace: server.Namespace}
}

// nacosClient connects to a server until the test ends.
func nacosClient(t *testing.T, o nacos.Options) *nacos.Client {
	t.Helper()
	client, _ := runNacosClient(t, o)
	return client
}

func runNacosClient(t *testing.T, o nacos.Options) (*nacos.Client, context.CancelFunc) {
	t.Helper()
	client, err := nacos.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := client.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return client, stop
}

func nacosKeys(t *testing.T, target *nacos.Target, g registry.Group) []string {
	t.Helper()
	held, err := target.Read(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, h := range held {
		out = append(out, h.Key)
	}
	return out
}

// eachNacos runs a test with each version, at the same time.
func eachNacos(t *testing.T, test func(t *testing.T, version int)) {
	t.Helper()
	for _, version := range harness.NacosVersions() {
		t.Run(fmt.Sprintf("Nacos %d", version), func(t *testing.T) {
			t.Parallel()
			test(t, version)
		})
	}
}

// swift is the push delay of servers whose reads tests wait for again and
// again.
const swift = 20 * time.Millisecond

// TestNacos runs what is written and read against one real server of each
// version, and against one that wants a login: a server has ten seconds to
// start.
func TestNacos(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	eachNacos(t, func(t *testing.T, version int) {
		server := harness.StartNacos(t, harness.NacosOptions{Version: version, PushDelay: swift})
		t.Run("a source", func(t *testing.T) { nacosSourceReads(t, server) })
		t.Run("a target", func(t *testing.T) { nacosTargetWrites(t, server) })
		t.Run("what others do", func(t *testing.T) { nacosReportsOthers(t, server) })
		t.Run("conformance", func(t *testing.T) {
			nacosPassesTheSuite(t, func() nacos.Options { return nacos.Options{Servers: []string{server.URL}} })
		})
		t.Run("refusals", func(t *testing.T) { nacosRefuses(t, server) })
		t.Run("bad input", func(t *testing.T) { nacosGetsBadInput(t, server) })
		t.Run("two publishers", func(t *testing.T) { nacosHasTwoPublishers(t, server) })
		t.Run("an id", func(t *testing.T) { nacosKeepsAnID(t, server) })
		t.Run("a restart of the server", func(t *testing.T) { nacosRestarts(t, server) })
		t.Run("a source outlives an outage", func(t *testing.T) { nacosSourceOutlives(t, server) })
		server.Kill()
		locked := harness.StartNacos(t, harness.NacosOptions{Version: version, PushDelay: swift, Auth: true, TokenTTL: 5 * time.Second})
		t.Run("a login", func(t *testing.T) { nacosLogsIn(t, locked) })
		t.Run("rights that are missing", func(t *testing.T) { nacosLacksRights(t, locked) })
		t.Run("conformance with a login", func(t *testing.T) { nacosPassesTheSuiteLoggedIn(t, locked) })
		t.Run("a source that is denied", func(t *testing.T) { nacosSourceIsDenied(t, locked) })
	})
}

func nacosTargetWrites(t *testing.T, server *harness.Nacos) {
	t.Helper()
	target, stop := nacosTarget(t, nacos.Options{Servers: []string{server.URL}})
	other, _ := nacosTarget(t, nacos.Options{Servers: []string{server.URL}})
	write := func(t *testing.T, target *nacos.Target, c registry.Change) {
		t.Helper()
		if err := target.Write(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("what is written is read back byte for byte", func(t *testing.T) {
		g := nacosGroup("a01")
		want := []registry.Entry{nacosEntry(g, 1, "me"), nacosEntry(g, 2, "me")}
		write(t, target, nacosChange(g, want...))
		held, err := target.Read(t.Context(), g)
		if err != nil || len(held) != 2 || held[0].Entry != want[0] || held[1].Entry != want[1] || !held[0].Live {
			t.Errorf("read %+v, %v\nwant %+v", held, err, want)
		}
		groups, err := target.Groups(t.Context())
		if err != nil || !slices.Contains(groups, g) {
			t.Errorf("groups %v, %v", groups, err)
		}
	})
	t.Run("what another connection holds stays when ours goes", func(t *testing.T) {
		g := nacosGroup("a44")
		write(t, target, nacosChange(g, nacosEntry(g, 1, "me")))
		write(t, other, nacosChange(g, nacosEntry(g, 2, "another")))
		write(t, target, registry.Change{Group: g})
		time.Sleep(time.Second)
		if got := nacosKeys(t, target, g); !slices.Equal(got, []string{"10.0.0.2:20000"}) {
			t.Errorf("left %v", got)
		}
	})
	t.Run("a batch of five thousand instances is one request", func(t *testing.T) {
		g := nacosGroup("big")
		var want []registry.Entry
		for i := 1; i <= 5000; i++ {
			want = append(want, nacosEntry(g, i, "me"))
		}
		write(t, target, nacosChange(g, want...))
		if got := len(nacosKeys(t, target, g)); got != len(want) {
			t.Errorf("read %d of %d", got, len(want))
		}
	})
	t.Run("two publishers of the same records, and either may go", func(t *testing.T) {
		g := nacosGroup("overlap")
		e := nacosEntry(g, 1, "me")
		write(t, target, nacosChange(g, e))
		write(t, other, nacosChange(g, e))
		time.Sleep(time.Second)
		stop()
		harness.Stays(t, 3*time.Second, "the instance is visible", func() error {
			return harness.Same(nacosKeys(t, other, g), []string{"10.0.0.1:20000"})
		})
	})
}

func nacosRestarts(t *testing.T, server *harness.Nacos) {
	t.Helper()
	target, _ := nacosTarget(t, nacos.Options{Servers: []string{server.URL}, Backoff: registry.Backoff{Min: 100 * time.Millisecond, Max: time.Second}})
	g := nacosGroup("restart")
	if err := target.Write(t.Context(), nacosChange(g, nacosEntry(g, 1, "me"))); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if held, err := target.Read(t.Context(), g); held != nil || !errors.Is(err, nacos.ErrNotConnected) && err == nil {
		t.Errorf("while the server is away: %v, %v, want an error and no list", held, err)
	}
	server.Start(t)
	select {
	case <-target.Capabilities().Lost:
	case <-time.After(time.Minute):
		t.Fatal("the loss was not reported")
	}
	if err := target.Write(t.Context(), nacosChange(g, nacosEntry(g, 1, "me"))); err != nil {
		t.Fatal(err)
	}
	if got := nacosKeys(t, target, g); !slices.Equal(got, []string{"10.0.0.1:20000"}) {
		t.Errorf("after the restart %v", got)
	}
}

func nacosLogsIn(t *testing.T, server *harness.Nacos) {
	t.Helper()
	options := func(password string) nacos.Options {
		return nacos.Options{
			Servers: []string{server.URL}, Username: harness.NacosUser, Timeout: 3 * time.Second,
			Password: func() (string, error) { return password, nil },
		}
	}
	g := nacosGroup("login")
	t.Run("a token that is valid for five seconds never interrupts", func(t *testing.T) {
		target, _ := nacosTarget(t, options(harness.NacosPassword))
		for i := range 7 {
			if err := target.Write(t.Context(), nacosChange(g, nacosEntry(g, 1+i%2, "me"))); err != nil {
				t.Fatalf("after %d s: %v", i, err)
			}
			time.Sleep(time.Second)
		}
	})
	t.Run("a wrong password is an error and never an empty list", func(t *testing.T) {
		target, _ := nacosTarget(t, options("wrong"))
		groups, err := target.Groups(t.Context())
		if groups != nil || err == nil || !strings.Contains(err.Error(), `nacos login as "nacos"`) {
			t.Errorf("%v, %v", groups, err)
		}
	})
	t.Run("no user where one is needed is an error and never an empty list", func(t *testing.T) {
		target, _ := nacosTarget(t, nacos.Options{Servers: []string{server.URL}})
		groups, err := target.Groups(t.Context())
		if groups != nil || !errors.Is(err, nacos.ErrDenied) {
			t.Errorf("groups: %v, %v", groups, err)
		}
		if held, err := target.Read(t.Context(), g); held != nil || !errors.Is(err, nacos.ErrDenied) {
			t.Errorf("read: %v, %v", held, err)
		}
		if err := target.Write(t.Context(), nacosChange(g, nacosEntry(g, 1, "me"))); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("write: %v", err)
		}
	})
}
