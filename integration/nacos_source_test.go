package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// A nacosReading is our source and its table.
type nacosReading struct {
	source *nacos.Source
	table  *registry.Table
}

// readNacos reads the Dubbo providers of a server until the test ends.
func readNacos(t *testing.T, o nacos.Options) *nacosReading {
	t.Helper()
	codec, err := dubbo.NewNacos(dubbo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Backoff = registry.Backoff{Min: 100 * time.Millisecond, Max: time.Second}
	source, err := nacos.NewSource(o, nacos.SourceOptions{
		Formats: []nacos.Format{codec}, ListInterval: time.Second, VerifyInterval: 10 * time.Minute, // so that pushes have to do it
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &nacosReading{source: source, table: registry.NewTable()}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, r.table) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// reported returns whether an interface is known, and its endpoints with their health;
// nothing where it has no row.
func (r *nacosReading) reported(iface string) []string {
	rows, certainty := r.table.Snapshot()
	var out []string
	for name, s := range rows {
		switch {
		case s.Interfaces[0].Name != iface:
			continue
		case certainty.Of(name) != nil:
			out = append(out, "unknown")
		default:
			out = append(out, "known")
		}
		for _, e := range s.Endpoints {
			out = append(out, fmt.Sprintf("%s %s", e.Host, e.Health))
		}
	}
	return out
}

func (r *nacosReading) await(t *testing.T, iface string, want ...string) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, fmt.Sprintf("the source reports %v at %s", want, iface), func() error {
		return harness.Same(r.reported(iface), want)
	})
}

func (r *nacosReading) knows() registry.Certainty {
	_, k := r.table.Snapshot()
	return k
}

func nacosProvider(iface, ip string, change ...func(*model.Instance)) model.Instance {
	in := model.Instance{
		Ip: ip, Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
		Metadata: map[string]string{"protocol": "tri", "path": iface, "interface": iface, "side": "provider"},
	}
	for _, f := range change {
		f(&in)
	}
	return in
}

func nacosServiceOf(iface string) string { return "providers:" + iface + "::" }

func nacosSourceReads(t *testing.T, server *harness.Nacos) {
	t.Helper()
	sdk := nacossdk.Connect(t, server.URL)
	sdk.Register(t, nacosServiceOf("api.A"), nacosProvider("api.A", "10.0.0.1"), nacosProvider("api.A", "10.0.0.2"))
	sdk.Register(t, "spring-shop", nacosProvider("x", "10.0.0.3"))
	r := readNacos(t, nacos.Options{Servers: []string{server.URL}})

	r.await(t, "api.A", "known", "10.0.0.1 healthy", "10.0.0.2 healthy")
	if k := r.knows(); !k.Synced || k.Stale != nil {
		t.Errorf("%+v", k)
	}
	t.Run("an instance that goes, comes, and turns unhealthy or disabled", func(t *testing.T) {
		register := func(all ...model.Instance) { sdk.Register(t, nacosServiceOf("api.A"), all...) }
		first, second := nacosProvider("api.A", "10.0.0.1"), nacosProvider("api.A", "10.0.0.2")
		register(second)
		r.await(t, "api.A", "known", "10.0.0.2 healthy")
		register(first, second)
		r.await(t, "api.A", "known", "10.0.0.1 healthy", "10.0.0.2 healthy")
		register(first, nacosProvider("api.A", "10.0.0.2", func(i *model.Instance) { i.Healthy = false }))
		r.await(t, "api.A", "known", "10.0.0.1 healthy", "10.0.0.2 unhealthy")
		register(first, nacosProvider("api.A", "10.0.0.2", func(i *model.Instance) { i.Enable = false }))
		r.await(t, "api.A", "known", "10.0.0.1 healthy")
		register(first, nacosProvider("api.A", "10.0.0.2", func(i *model.Instance) { i.Weight = 0 }))
		r.await(t, "api.A", "known", "10.0.0.1 healthy", "10.0.0.2 disabled")
	})
	t.Run("a service that the server protects", func(t *testing.T) {
		unhealthy := func(i *model.Instance) { i.Healthy = false }
		alive, dead := nacosProvider("api.P", "10.0.0.7"), nacosProvider("api.P", "10.0.0.8", unhealthy)
		sdk.Register(t, nacosServiceOf("api.P"), alive, nacosProvider("api.P", "10.0.0.8"))
		r.await(t, "api.P", "known", "10.0.0.7 healthy", "10.0.0.8 healthy")
		server.Protect(t, nacosServiceOf("api.P"), 0.6)
		sdk.Register(t, nacosServiceOf("api.P"), alive, dead)
		r.await(t, "api.P", "unknown", "10.0.0.7 healthy", "10.0.0.8 unhealthy")
		sdk.Register(t, nacosServiceOf("api.P"), nacosProvider("api.P", "10.0.0.7", unhealthy), dead)
		r.await(t, "api.P", "unknown", "10.0.0.7 unhealthy", "10.0.0.8 unhealthy")
		sdk.Register(t, nacosServiceOf("api.P"), alive)
		r.await(t, "api.P", "known", "10.0.0.7 healthy")
	})
	t.Run("a service that is new is found", func(t *testing.T) {
		sdk.Register(t, nacosServiceOf("api.B"), nacosProvider("api.B", "10.0.0.5"))
		r.await(t, "api.B", "known", "10.0.0.5 healthy")
	})
	t.Run("a provider that dies withdraws its instances, and others stay", func(t *testing.T) {
		target, stop := nacosTarget(t, nacos.Options{Servers: []string{server.URL}})
		g := registry.Group{Kind: "providers", Group: "DEFAULT_GROUP", Name: nacosServiceOf("api.C")}
		if err := target.Write(t.Context(), nacosChange(g, nacosProviderEntry(g, "api.C", "10.0.0.6"))); err != nil {
			t.Fatal(err)
		}
		r.await(t, "api.C", "known", "10.0.0.6 healthy")
		stop()
		r.await(t, "api.C", "known")
		r.await(t, "api.B", "known", "10.0.0.5 healthy")
	})
}

func nacosProviderEntry(g registry.Group, iface, ip string) registry.Entry {
	e := nacosEntry(g, 1, "me")
	in := nacosProvider(iface, ip)
	value := strings.Replace(e.Value, `"10.0.0.1"`, `"`+ip+`"`, 1)
	value = strings.Replace(value, `"protocol":"tri"`, fmt.Sprintf(`"interface":%q,"path":%q,"protocol":"tri"`, in.Metadata["interface"], in.Metadata["path"]), 1)
	return registry.Entry{Group: g, Key: ip + ":20000", Value: value}
}

func nacosSourceOutlives(t *testing.T, server *harness.Nacos) {
	t.Helper()
	target, _ := nacosTarget(t, nacos.Options{Servers: []string{server.URL}, Backoff: registry.Backoff{Min: 100 * time.Millisecond, Max: time.Second}})
	g := registry.Group{Kind: "providers", Group: "DEFAULT_GROUP", Name: nacosServiceOf("api.A")}
	write := func() error {
		return target.Write(t.Context(), nacosChange(g, nacosProviderEntry(g, "api.A", "10.0.0.1")))
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	r := readNacos(t, nacos.Options{Servers: []string{server.URL}})
	r.await(t, "api.A", "known", "10.0.0.1 healthy")
	reader := r.table.Reader()
	reader.Drain()

	server.Kill()
	harness.Eventually(t, 30*time.Second, "the table is stale", func() error {
		if r.knows().Stale == nil {
			return errors.New("not stale")
		}
		return nil
	})
	harness.Stays(t, 3*time.Second, "the rows stay while the server is away", func() error {
		return harness.Same(r.reported("api.A"), []string{"unknown", "10.0.0.1 healthy"})
	})
	epoch := r.knows().Epoch
	server.Wipe(t)
	server.Start(t)
	harness.Eventually(t, time.Minute, "the wiped server is read anew", func() error {
		if k := r.knows(); k.Stale != nil || k.Epoch <= epoch {
			return fmt.Errorf("%+v", k)
		}
		return nil
	})
	for name, row := range reader.Drain().Rows {
		if !row.Found {
			t.Errorf("%s: a change that the restart made was reported, want found: %+v", name, row.Service)
		}
	}
	harness.Eventually(t, time.Minute, "the provider registers again", write)
	r.await(t, "api.A", "known", "10.0.0.1 healthy")
}

func nacosSourceIsDenied(t *testing.T, server *harness.Nacos) {
	t.Helper()
	password := func(p string) func() (string, error) { return func() (string, error) { return p, nil } }
	options := nacos.Options{Servers: []string{server.URL}, Username: harness.NacosUser, Password: password(harness.NacosPassword)}
	target, _ := nacosTarget(t, options)
	g := registry.Group{Kind: "providers", Group: "DEFAULT_GROUP", Name: nacosServiceOf("api.A")}
	if err := target.Write(t.Context(), nacosChange(g, nacosProviderEntry(g, "api.A", "10.0.0.1"))); err != nil {
		t.Fatal(err)
	}
	r, anonymous := readNacos(t, options), readNacos(t, nacos.Options{Servers: []string{server.URL}})
	r.await(t, "api.A", "known", "10.0.0.1 healthy")
	harness.Stays(t, 7*time.Second, "a token of five seconds never interrupts, and who has none is never notified of an empty registry", func() error {
		if k := r.knows(); k.Stale != nil || len(k.Unknown) > 0 {
			return fmt.Errorf("%+v", k)
		}
		if k := anonymous.knows(); k.Synced || k.Stale == nil {
			return fmt.Errorf("without a user: %+v", k)
		}
		return nil
	})
	if k := anonymous.knows(); !errors.Is(k.Stale, nacos.ErrDenied) {
		t.Errorf("without a user: %v, want denied", k.Stale)
	}
}
