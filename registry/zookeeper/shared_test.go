package zookeeper_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestSource_SharedClientReconnects: the session goes on over each connection, what
// changes meanwhile and later is reported, and the library keeps no watches.
func TestSource_SharedClientReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		register(t, s, "api.A", "10.0.0.1:20880")
		c := dial(t, s)
		codec, err := dubbo.NewZooKeeper(dubbo.Options{})
		must(t, err)
		interest := registry.NewInterest()
		interest.Add("api.A")
		source, err := zookeeper.NewSource(zookeeper.Options{Servers: []string{"server:2181"}}, zookeeper.SourceOptions{
			Formats: []zookeeper.Format{codec}, Interest: interest, Client: func() (*zookeeper.Client, error) { return c, nil },
		})
		must(t, err)
		table := registry.NewTable()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- source.Run(ctx, table) }()
		later(time.Second)
		for n := range 20 {
			was := fmt.Sprintf("10.0.0.%d:20880", n+1)
			wantReported(t, table, "api.A="+was)
			s.DropConnections()
			s.Delete(provider("api.A", was))
			register(t, s, "api.A", "10.0.1.1:20880")
			later(time.Minute)
			wantReported(t, table, "api.A=10.0.1.1:20880")
			register(t, s, "api.A", fmt.Sprintf("10.0.0.%d:20880", n+2))
			s.Delete(provider("api.A", "10.0.1.1:20880"))
			later(time.Second)
		}
		if state := c.State(); state.Sessions != 1 || state.Reconnects != 20 {
			t.Errorf("sessions = %d, reconnects = %d, want one session and 20", state.Sessions, state.Reconnects)
		}
		if n := len(s.Sessions()); n != 1 {
			t.Errorf("sessions of the server = %d, want one", n)
		}
		if armed, again := s.Watches(); armed > 4 || again > 0 {
			t.Errorf("watches = %d, armed again = %d; want those of one name and none", armed, again)
		}
		source.Recheck() // over another connection
		later(time.Minute)
		wantReported(t, table, "api.A=10.0.0.21:20880")
		if state := c.State(); state.Sessions != 1 || state.Reconnects != 21 {
			t.Errorf("after Recheck: sessions = %d, reconnects = %d, want one session and 21", state.Sessions, state.Reconnects)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !c.State().Connected {
			t.Error("the end of the source has ended the connection of its process")
		}
	})
}
