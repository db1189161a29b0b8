package zookeeper_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestAccess_HomesAreClosedToOthers shows that no other user may delete the
// fence, the records of owners and the registry's id, or create the node alive,
// with acl: private and read-only.
func TestAccess_HomesAreClosedToOthers(t *testing.T) {
	t.Parallel()
	for name, access := range map[string]zookeeper.Access{"private": zookeeper.Private, "read-only": zookeeper.ReadOnly} {
		for when, before := range map[string]func(*testing.T, *zkfake.Server){
			"made new": func(*testing.T, *zkfake.Server) {},
			"made by a version before": func(t *testing.T, s *zkfake.Server) {
				t.Helper()
				must(t, s.Put("/xds-bridge/"+owner+"/ledger", nil))
				must(t, s.Put("/xds-bridge/"+owner+"/fence", []byte("3 us")))
			},
		} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				s := serve(t)
				before(t, s)
				password := file(t, filepath.Join(t.TempDir(), "password"), "first")
				client := dial(t, s, func(o *zookeeper.Options) { o.User, o.PasswordFile = "bridge", password })
				tg := target(t, client, withFence(&zookeeper.Fence{Term: 7, Holder: "us"}, nil), func(o *zookeeper.TargetOptions) {
					o.Access, o.Bridges = access, []string{"b"}
				})
				write(t, tg, creation(ours(0, 0, 0)))
				_, err := client.ID(t.Context(), "the-id", access)
				must(t, err)
				record, err := zookeeper.NewLeaseStore(client, owner, "zk", access)
				must(t, err)
				must(t, record.Save(t.Context(), []byte("one"), ""))
				anybody := otherUser(t, s)
				for _, p := range s.Paths("/xds-bridge") {
					if err := anybody.Delete(p, -1); err == nil {
						t.Errorf("Delete of %s by another user: got no error, want one", p)
					}
				}
				all := zk.WorldACL(zk.PermAll)
				if _, err := anybody.Create("/xds-bridge/"+owner+"/alive", nil, zk.FlagEphemeral, all); err == nil {
					t.Error("Create of the node alive by another user: got no error, want one: it keeps the bridge from starting")
				}
				if _, err := anybody.Create("/xds-bridge/another", nil, 0, all); err != nil {
					t.Errorf("Create of the home of another owner = %v, want no error", err)
				}
				write(t, tg, registry.Change{Group: groupN(0), Delete: read(t, tg, groupN(0))})
			})
		}
	}
}

// otherUser is a client without a user.
func otherUser(t *testing.T, s *zkfake.Server) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithLogInfo(false),
		zk.WithDialer(func(network, address string, _ time.Duration) (net.Conn, error) {
			return s.Dial(context.Background(), network, address)
		}))
	must(t, err)
	t.Cleanup(conn.Close)
	return conn
}
