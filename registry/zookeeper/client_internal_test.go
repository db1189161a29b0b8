package zookeeper

import (
	"context"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

func TestClient_EndedTargets(t *testing.T) {
	t.Parallel()
	server := zkfake.New(zkfake.Options{})
	client, err := Dial(Options{Servers: []string{"server:2181"}, Dial: server.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 { // as reloads make them over a link that stays
		target, err := NewTarget(client, TargetOptions{Owner: "shop", Layouts: []Layout{pathLayout{}}, Lifetime: Session})
		if err != nil {
			t.Fatal(err)
		}
		target.KeepAlive(ended)
	}
	client.mu.Lock()
	defer client.mu.Unlock()
	if n := len(client.lost); n != 1 {
		t.Errorf("channels of lost sessions = %d, want 1", n)
	}
}

// pathLayout is a layout that only has a path.
type pathLayout struct{ Layout }

func (pathLayout) Parents() string { return "/test/*" }
