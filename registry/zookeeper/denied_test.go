package zookeeper_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/springcloud"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// deny stores an entry as a client does that lets no other read it.
func deny(t *testing.T, server *zkfake.Server, e registry.Entry) {
	t.Helper()
	path, data := pathOf(t, layout{data: true}, e)
	must(t, server.Put(path, data))
	must(t, server.SetACL(path, deniedToUs))
}

// TestTarget_DeniedNode: providers share a parent with the
// bridge, and may keep their nodes to themselves.
func TestTarget_DeniedNode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *zkfake.Server){
		"its neighbours are read, added and deleted": func(t *testing.T, server *zkfake.Server) {
			to := target(t, dial(t, server), withData)
			write(t, to, creation(ours(1, 1, 1)))
			deny(t, server, theirs(1, 9, 1))
			held := read(t, to, groupN(1))
			if len(held) != 2 || held[0].Owner != "" || held[1].Entry != ours(1, 1, 1) {
				t.Fatalf("Read next to a denied node = %+v, want it without an owner, and ours", held)
			}
			write(t, to, registry.Change{
				Group: groupN(1), Put: []registry.Write{{New: ours(1, 2, 1)}}, Delete: held[1:], Want: []registry.Entry{ours(1, 2, 1)},
			})
			if held := read(t, to, groupN(1)); len(held) != 2 || held[1].Entry != ours(1, 2, 1) {
				t.Errorf("Read after the change = %+v, want the denied node and %v", held, ours(1, 2, 1))
			}
		},
		"our entry of the same name is refused": func(t *testing.T, server *zkfake.Server) {
			to := target(t, dial(t, server), withData)
			deny(t, server, theirs(1, 9, 1))
			err := to.Write(t.Context(), creation(ours(1, 1, 1), ours(1, 9, 1)))
			var refused registry.Refused
			if !errors.As(err, &refused) || len(refused) != 1 || !refused.Has(ours(1, 9, 1).Key) || !strings.Contains(err.Error(), "may not be read") {
				t.Errorf("Write = %v, want one entry refused because its node may not be read", err)
			}
			if held := read(t, to, groupN(1)); len(held) != 2 || held[1].Entry != ours(1, 1, 1) {
				t.Errorf("Read after the write = %+v, want the denied node and %v", held, ours(1, 1, 1))
			}
		},
		"one that may be ours fails the group": func(t *testing.T, server *zkfake.Server) {
			must(t, server.Put(parentN(1), nil))
			password := file(t, filepath.Join(t.TempDir(), "password"), "first")
			owned := target(t, dial(t, server, func(o *zookeeper.Options) { o.User, o.PasswordFile = "bridge", password }),
				withData, func(o *zookeeper.TargetOptions) { o.Access = zookeeper.Private })
			write(t, owned, creation(ours(1, 1, 1)))
			if held, err := target(t, dial(t, server), withData).Read(t.Context(), groupN(1)); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "may be ours") {
				t.Errorf("Read by another user = %+v, %v, want a refusal: the node may be ours", held, err)
			}
			if held := read(t, owned, groupN(1)); len(held) != 1 {
				t.Errorf("Read = %+v, want one entry", held)
			}
		},
		"its format does not matter to an exclusive layout": func(t *testing.T, server *zkfake.Server) {
			must(t, server.Put("/services/shop/10.0.0.9:1", nil))
			must(t, server.SetACL("/services/shop/10.0.0.9:1", deniedToUs))
			to, want := target(t, dial(t, server), withApplications(t)), shop(t, 1, "10.0.0.1")
			write(t, to, changeTo(nil, want)) // which looks for itself
			held, want := owned(read(t, to, want[0].Group)), shop(t, 1, "10.0.0.1", "10.0.0.2")
			write(t, to, changeTo(held, want))
			if held := owned(read(t, to, want[0].Group)); len(held) != len(want) {
				t.Errorf("Read next to a denied node = %+v, want %d of our entries", held, len(want))
			}
		},
		"only the element of a denied list is refused": func(t *testing.T, server *zkfake.Server) {
			to := target(t, dial(t, server), withApplications(t))
			must(t, server.Put("/dubbo/mapping/api.A", []byte("other")))
			must(t, server.SetACL("/dubbo/mapping/api.A", deniedToUs))
			want := shop(t, 1, "10.0.0.1")
			err := to.Write(t.Context(), changeTo(nil, want))
			var refused registry.Refused
			if !errors.As(err, &refused) || len(refused) != 1 || !refused.Has("#mapping/api.A") {
				t.Errorf("Write next to a denied list = %v, want its element refused", err)
			}
			if held := read(t, to, want[0].Group); len(held) != len(want)-1 {
				t.Errorf("Read after the write = %+v, want %d entries", held, len(want)-1)
			}
		},
		"its key is reported by its name": func(t *testing.T, server *zkfake.Server) {
			cloud, err := springcloud.NewZooKeeper(instance.Options{Protocol: "http", Root: "/spring"})
			must(t, err)
			g, _ := cloud.Group("/spring/orders")
			name, _, err := cloud.Node(registry.Entry{Group: g, Key: "10.0.0.9:1", Value: "{}"})
			must(t, err)
			must(t, server.Put("/spring/orders/"+name, nil))
			must(t, server.SetACL("/spring/orders/"+name, deniedToUs))
			to := target(t, dial(t, server), func(o *zookeeper.TargetOptions) { o.Layouts = []zookeeper.Layout{cloud} })
			if held := read(t, to, g); len(held) != 1 || held[0].Key != "10.0.0.9:1" || held[0].Owner != "" {
				t.Errorf("Read of a denied node = %+v, want its key without an owner", held)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, serve(t))
		})
	}
}

// owned returns the entries with an owner, which is ours in these tests.
func owned(held []registry.Stored) (ours []registry.Stored) {
	for _, h := range held {
		if h.Owner != "" {
			ours = append(ours, h)
		}
	}
	return ours
}
