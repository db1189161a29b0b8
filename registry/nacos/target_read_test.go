package nacos_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// anothers returns an instance that another client registers.
func anothers(ip string) model.Instance {
	return model.Instance{Ip: ip, Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, ClusterName: "DEFAULT"}
}

func TestTarget_Changes(t *testing.T) {
	const rival = "10.9.9.1" // of another client, there from the start
	edited := func(change func(*model.Instance)) func(*testing.T, *rig) {
		return func(_ *testing.T, r *rig) {
			r.server.Edit(service(greeter), func(in *model.Instance) {
				if in.Ip == "10.0.0.1" {
					change(in)
				}
			})
		}
	}
	cases := map[string]struct {
		happens  func(t *testing.T, r *rig)
		reported bool
	}{
		"our write": {happens: func(t *testing.T, r *rig) {
			r.write(t, entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.3", mine))
		}},
		"our write, and its push again after it was read back": {happens: func(t *testing.T, r *rig) {
			r.write(t, entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.3", mine))
			time.Sleep(2 * time.Second)
			r.watch(t)
			r.server.Edit(service(greeter), func(*model.Instance) {})
		}},
		"a write of another at once after ours, to be read back": {happens: func(t *testing.T, r *rig) {
			r.write(t, entry(greeter, "10.0.0.3", mine))
			r.server.Set(service(greeter), "app")
		}},
		"an instance that another adds":      {reported: true, happens: func(_ *testing.T, r *rig) { r.server.Set(service(greeter), "new", anothers("10.9.9.2")) }},
		"an instance that another withdraws": {reported: true, happens: func(_ *testing.T, r *rig) { r.server.Set(service(greeter), "app") }},
		"ours disabled in the console":       {reported: true, happens: edited(func(in *model.Instance) { in.Enable = false })},
		"ours edited in the console":         {reported: true, happens: edited(func(in *model.Instance) { in.Weight = 7 })},
		"ours removed from the registry":     {reported: true, happens: func(_ *testing.T, r *rig) { r.server.Remove(service(greeter)) }},
		"another service":                    {happens: func(_ *testing.T, r *rig) { r.server.Set(service(groupN(7)), "app", anothers("10.9.9.9")) }},
		"the service after it is read without a watch": {happens: func(t *testing.T, r *rig) {
			r.read(t)
			if n := r.server.Subscriptions(); n != 0 {
				t.Errorf("%d subscriptions, want none", n)
			}
			r.server.Set(service(greeter), "app")
		}},
		"the service, watched on another connection": {reported: true, happens: func(t *testing.T, r *rig) {
			r.server.Drop()
			<-r.target.Capabilities().Lost
			r.write(t, entry(greeter, "10.0.0.1", mine))
			r.watch(t)
			r.server.Set(service(greeter), "app")
		}},
	}
	for name, c := range cases {
		bubble(t, name, func(t *testing.T) {
			r := start(t, nacosfake.NewServer(), nil)
			changed := r.target.Changed()
			r.server.Set(service(greeter), "app", anothers(rival))
			r.write(t, entry(greeter, "10.0.0.1", mine))
			for range 3 {
				r.watch(t)
			}
			time.Sleep(time.Minute)
			if got := r.target.Changes(); got != nil || r.server.Subscriptions() != 1 {
				t.Fatalf("Changes() = %v, %d subscriptions, want none and one before anything happens", got, r.server.Subscriptions())
			}
			c.happens(t, r)
			time.Sleep(time.Second)
			var want []registry.Group
			if c.reported {
				want = []registry.Group{greeter}
				<-changed
			}
			if got := r.target.Changes(); !reflect.DeepEqual(got, want) {
				t.Errorf("Changes() = %v, want %v", got, want)
			}
			if got := r.target.Changes(); got != nil {
				t.Errorf("Changes() = %v, want none a second time", got)
			}
		})
	}
}

// TestTarget_WatchTooLarge shows that a service which outgrows a message does not
// end the connection that all else is published on.
func TestTarget_WatchTooLarge(t *testing.T) {
	bubble(t, "a service of more than a message", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), func(o *nacos.Options) { o.MaxReceive = 4096 })
		r.target.Changed()
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.watch(t)
		many := make([]model.Instance, 20)
		for i := range many {
			many[i] = anothers("10.9.9.1")
			many[i].Port = uint64(i + 1)
		}
		r.server.Set(service(greeter), "app", many...)
		time.Sleep(time.Second)
		if got := r.target.Changes(); len(got) != 1 {
			t.Errorf("Changes() = %v, want the service", got)
		}
		if _, err := r.target.Watch(t.Context(), greeter); err == nil {
			t.Error("Watch() = nil, want that the service is too large")
		}
		many = append(many, many...)
		r.server.Set(service(greeter), "app", many...)
		time.Sleep(time.Minute)
		if st := r.client.State(); !st.Connected || st.Lost > 0 || r.server.Subscriptions() != 0 {
			t.Errorf("State() = %+v with %d subscriptions, want a connection that was never lost", st, r.server.Subscriptions())
		}
	})
}

func (r *rig) watch(t *testing.T) {
	t.Helper()
	if _, err := r.target.Watch(t.Context(), greeter); err != nil {
		t.Fatal(err)
	}
}

var _ registry.Watcher = (*nacos.Target)(nil)
