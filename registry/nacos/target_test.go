package nacos_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func TestTarget(t *testing.T) {
	bubble(t, "the namespace that is left empty is public, where everybody else looks", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.read(t)
		for _, kind := range []string{"BatchInstanceRequest", "ServiceQueryRequest"} {
			for _, q := range r.server.Requests(kind) {
				if !strings.Contains(string(q.Body), `"namespace":"public"`) {
					t.Errorf("%s %s, want the namespace public", kind, q.Body)
				}
			}
		}
	})
	bubble(t, "a batch is the whole set, and nothing of it is lost in between", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
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
			t.Errorf("Groups() = %v, %v, want %v", groups, err, greeter)
		}
	})
	bubble(t, "one of two instances is deleted, and the other never disappears", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine))
		r.write(t, entry(greeter, "10.0.0.2", mine))
		r.expect(t, "10.0.0.2")
		if n := len(r.server.Requests("InstanceRequest")); n != 0 {
			t.Errorf("%d requests that withdraw everything, want none", n)
		}
	})
	bubble(t, "ours go, and those of others stay", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.server.Set(service(greeter), "app", model.Instance{Ip: "10.9.9.9", Port: 1, Enable: true, Healthy: true, Ephemeral: true})
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1", "10.9.9.9")
		gone := registry.Change{Group: greeter, Delete: r.read(t)[:1]}
		if err := r.target.Write(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		r.expect(t, "10.9.9.9")
		if held := r.read(t); len(held) != 1 || held[0].Owner != "" || held[0].Live {
			t.Errorf("read %+v, want one without an owner", held)
		}
	})
	bubble(t, "an instance of our other connection is not deleted, and not reported as deleted", func(t *testing.T) {
		server := nacosfake.NewServer()
		a := start(t, server, nil)
		b := &rig{server: server, rpc: a.rpc, web: a.web}
		b.client, b.target, b.stop = a.connect(t, nil)
		stays, deleted := entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine)
		a.write(t, stays, deleted)
		b.write(t, stays, deleted)
		without := func(r *rig) error {
			c := registry.Change{Group: greeter, Want: []registry.Entry{stays}}
			for _, h := range r.read(t) {
				if h.Entry == deleted {
					c.Delete = append(c.Delete, h)
				}
			}
			return r.target.Write(t.Context(), c)
		}
		if err := without(a); err != nil { // its own part
			t.Fatal(err)
		}
		for range 2 {
			if err := without(a); !errors.Is(err, registry.ErrConflict) || !strings.Contains(err.Error(), "10.0.0.2") {
				t.Errorf("Write() = %v while another connection publishes it, want a conflict", err)
			}
			a.expect(t, "10.0.0.1", "10.0.0.2")
		}
		if err := without(b); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "10.0.0.1")
		if err := without(a); err != nil { // it is not there
			t.Fatal(err)
		}
	})
	bubble(t, "one instance with 64 kB of metadata does not cost its neighbours", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		big := entry(greeter, "10.0.0.1", mine, "blob", strings.Repeat("x", 64<<10))
		err := r.target.Write(t.Context(), change(greeter, big, entry(greeter, "10.0.0.2", mine)))
		if !errors.Is(err, registry.ErrRefused) || !errors.Is(err, metadata.ErrNacosLimit) || !strings.Contains(err.Error(), "10.0.0.1:20000") {
			t.Errorf("Write() = %v, want a refusal of the entries beyond the limit", err)
		}
		r.expect(t, "10.0.0.2")
	})
	bubble(t, "an update over the limit keeps what is there, and does not affect others", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine))
		held := r.read(t)
		big := entry(greeter, "10.0.0.1", mine, "blob", strings.Repeat("x", 64<<10))
		c := registry.Change{Group: greeter, Want: []registry.Entry{big, entry(greeter, "10.0.0.3", mine)}}
		c.Put = []registry.Write{{New: big, Old: &held[0]}, {New: c.Want[1]}}
		c.Delete = held[1:]
		var refused registry.Refused
		if err := r.target.Write(t.Context(), c); !errors.As(err, &refused) || len(refused) != 1 || !refused.Has(big.Key) {
			t.Errorf("%v, want only %s refused", err, big.Key)
		}
		r.expect(t, "10.0.0.1", "10.0.0.3")
	})
	bubble(t, "a name that Nacos refuses is never sent", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		for _, name := range []string{"", "a b", "a@@b", "a\x00b", "名", strings.Repeat("a", 600)} {
			g := registry.Group{Kind: format, Group: "DEFAULT_GROUP", Name: name}
			if err := r.target.Write(t.Context(), change(g, entry(g, "10.0.0.1", mine))); !errors.Is(err, registry.ErrRefused) {
				t.Errorf("Write(%.20q) = %v, want a refusal", name, err)
			}
		}
		if n := len(r.server.Requests("BatchInstanceRequest")); n != 0 {
			t.Errorf("%d requests, want none", n)
		}
	})
	bubble(t, "reads wait until the server has caught up with the last write", func(t *testing.T) {
		server := nacosfake.NewServer()
		server.Lag = 600 * time.Millisecond
		r := start(t, server, nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.write(t, entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine))
		if held := r.read(t); len(held) != 2 {
			t.Errorf("read %d entries from a cache that lags, want 2", len(held))
		}
	})
	bubble(t, "an address that another owner publishes too is shown as ours and as theirs", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.provider("10.0.0.1", theirs.String())
		var owners []string
		for _, h := range r.read(t) {
			owners = append(owners, h.Owner)
		}
		if slices.Sort(owners); !slices.Equal(owners, slices.Sorted(slices.Values([]string{mine.Owner, theirs.Owner}))) {
			t.Errorf("read entries of %v, want one of ours and one of theirs", owners)
		}
	})
	bubble(t, "the services of a server that pages are listed", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.server.PageLimit = 2
		for i := range 5 {
			g := groupN(i)
			if err := r.target.Write(t.Context(), change(g, entry(g, "10.0.0.1", mine))); err != nil {
				t.Fatal(err)
			}
		}
		if groups, err := r.target.Groups(t.Context()); err != nil || len(groups) != 5 {
			t.Errorf("%d groups, want 5: %v", len(groups), err)
		}
	})
}

// provider registers an address of the greeter by another connection, with a
// mark or, empty, without.
func (r *rig) provider(ip, mark string) {
	in := model.Instance{
		Ip: ip, Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
		Metadata: map[string]string{"protocol": "tri"},
	}
	if mark != "" {
		in.Metadata[metadata.MarkKey] = mark
	}
	r.server.Set(service(greeter), "provider", in)
}

// TestTarget_CheckFindsADuplicate: where a provider registers the address that we
// registered for it, ours is deleted, and does not return after theirs was deleted.
func TestTarget_CheckFindsADuplicate(t *testing.T) {
	published := func(t *testing.T) (*rig, *plan.Planner, func()) {
		t.Helper()
		r, p := start(t, nacosfake.NewServer(), nil), plan.New(mine.Owner)
		turn := func() {
			p.Observe(greeter, r.read(t))
			c, _ := p.Change(greeter)
			if c.Empty() {
				return
			}
			if err := r.target.Write(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			p.Applied(c)
		}
		p.Claim(plan.Origin{Service: "s"}, plan.Withdrawn, []registry.Entry{entry(greeter, "10.0.0.1", mine)})
		turn()
		r.provider("10.0.0.1", "")
		return r, p, turn
	}
	bubble(t, "consumers see the address once", func(t *testing.T) {
		r, _, turn := published(t)
		turn()
		r.expect(t, "10.0.0.1")
	})
	bubble(t, "an entry that was withdrawn meanwhile does not return after theirs was deleted", func(t *testing.T) {
		r, p, turn := published(t)
		p.Claim(plan.Origin{Service: "s"}, plan.Withdrawn, nil)
		turn()
		r.server.Set(service(greeter), "provider")
		r.expect(t)
	})
	bubble(t, "an entry that is still claimed returns after theirs was deleted", func(t *testing.T) {
		r, _, turn := published(t)
		turn()
		r.server.Set(service(greeter), "provider")
		turn()
		r.expect(t, "10.0.0.1")
	})
}

func TestNew_NamesTheInvalidOption(t *testing.T) {
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
			t.Errorf("New() with %s = %v, want an error that names %s", name, err, tt.want)
		}
	}
}

// exclusive is a layout that accepts no instance in the same service that reports that it
// is another.
type exclusive struct{ layout }

func (exclusive) Foreign(_ string, in metadata.NacosInstance) error {
	if in.Metadata["format"] != "" {
		return errors.New("is of " + in.Metadata["format"])
	}
	return nil
}

// TestTarget_ForeignFormat: what is ours there stays as it
// is, and goes when it has to.
func TestTarget_ForeignFormat(t *testing.T) {
	bubble(t, "an exclusive format", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		target, err := nacos.NewTarget(r.client, nacos.TargetOptions{Owner: mine.Owner, Layouts: []nacos.Layout{exclusive{}}})
		if err != nil {
			t.Fatal(err)
		}
		r.target = target
		first, second := entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine)
		r.write(t, first)
		r.server.Set(service(greeter), "app", model.Instance{
			Ip: "10.9.9.9", Port: 1, Enable: true, Healthy: true, Ephemeral: true, Metadata: map[string]string{"format": "another"},
		})
		r.read(t)
		c := change(greeter, first, second)
		c.Put[0].Old = &registry.Stored{Entry: first, Owner: mine.Owner}
		if err := target.Write(t.Context(), c); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "10.9.9.9:1, which is of another") {
			t.Errorf("Write() = %v, want a refusal that names the instance of another format", err)
		}
		r.expect(t, "10.0.0.1", "10.9.9.9")
		r.server.Set(service(greeter), "app")
		r.read(t)
		if err := target.Write(t.Context(), c); err != nil {
			t.Error(err)
		}
		r.expect(t, "10.0.0.1", "10.0.0.2")
	})
}

// TestTarget_Leave has another owner say that it is about to delete the instance of an
// address that we claim: ours exists before it is deleted.
func TestTarget_Leave(t *testing.T) {
	bubble(t, "ours next to one that leaves", func(t *testing.T) {
		ours := start(t, nacosfake.NewServer(), nil)
		other := &rig{server: ours.server, rpc: ours.rpc, web: ours.web}
		other.client, other.target, other.stop = ours.connectAs(t, theirs.Owner, nil)
		entries := []registry.Entry{entry(greeter, "10.0.0.1", theirs)}
		other.write(t, entries...)
		held, err := ours.target.Watch(t.Context(), greeter)
		if err != nil || len(held) != 1 || held[0].Leaving {
			t.Fatalf("Watch() = %+v, %v, want one that stays", held, err)
		}
		_ = ours.target.Changed()
		other.write(t, metadata.Leave(entries[0]))
		time.Sleep(time.Second)
		if got := ours.target.Changes(); !slices.Equal(got, []registry.Group{greeter}) {
			t.Errorf("Changes() = %v, want the service that the other leaves", got)
		}
		held = ours.read(t)
		if len(held) != 1 || !held[0].Leaving || held[0].Owner != theirs.Owner {
			t.Fatalf("Read() = %+v, want one that leaves", held)
		}
		own := entry(greeter, "10.0.0.1", mine)
		held[0].Entry = own
		c := change(greeter, own)
		c.Put[0].Old = &held[0]
		if err := ours.target.Write(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ours.expect(t, "10.0.0.1", "10.0.0.1")
		other.stop()
		time.Sleep(time.Minute)
		ours.expect(t, "10.0.0.1")
	})
}
