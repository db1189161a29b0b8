package nacos_test

import (
	"encoding/json"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
)

// batches returns how many batches the server received, and fails the test
// where those of one service differ.
func (r *rig) batches(t *testing.T) int {
	t.Helper()
	all := r.server.Requests("BatchInstanceRequest")
	for _, b := range all {
		if got, want := stored(t, b), stored(t, all[0]); got != want {
			t.Errorf("a batch of\n%s\nafter one of\n%s", got, want)
		}
	}
	return len(all)
}

// stored returns the instances of a batch, byte for byte as they were sent.
func stored(t *testing.T, r nacosfake.Request) string {
	t.Helper()
	var b struct {
		Instances json.RawMessage `json:"instances"`
	}
	if err := json.Unmarshal(r.Body, &b); err != nil {
		t.Fatal(err)
	}
	return string(b.Instances)
}

func TestTarget_Restarts(t *testing.T) {
	both := []registry.Entry{entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine)}
	bubble(t, "the instances of a process that ends are deleted with it, and its successor publishes them once", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, both...)
		r.stop()
		synctest.Wait()
		r.expect(t)
		_, r.target, _ = r.connect(t, nil)
		r.write(t, both...)
		r.expect(t, "10.0.0.1", "10.0.0.2")
		if n := r.batches(t); n != 2 {
			t.Errorf("%d batches, want one of each", n)
		}
	})
	bubble(t, "if two processes publish the same instances, either may end without a change", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, both...)
		first := r.stop
		_, r.target, _ = r.connect(t, nil)
		held := r.read(t)
		if len(held) != 2 || held[0].Live || held[0].Owner != mine.Owner {
			t.Errorf("read %+v, want two that are ours and another connection's", held)
		}
		r.write(t, both...)
		r.expect(t, "10.0.0.1", "10.0.0.2")
		first()
		synctest.Wait()
		r.expect(t, "10.0.0.1", "10.0.0.2")
		if held := r.read(t); len(held) != 2 || !held[0].Live {
			t.Errorf("read %+v, want two that are live", held)
		}
		if n := r.batches(t); n != 2 {
			t.Errorf("%d batches, want one of each", n)
		}
	})
	bubble(t, "what changed while we were away is one batch with the new set", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, both...)
		r.stop()
		time.Sleep(time.Hour)
		_, r.target, _ = r.connect(t, nil)
		r.write(t, both[1], entry(greeter, "10.0.0.3", mine))
		r.expect(t, "10.0.0.2", "10.0.0.3")
		if n := len(r.server.Requests("BatchInstanceRequest")); n != 2 {
			t.Errorf("%d batches, want 2", n)
		}
	})
	bubble(t, "published instances are not sent again", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		want := entry(greeter, "10.0.0.1", mine)
		r.write(t, want)
		if err := r.target.Write(t.Context(), registry.Change{Group: greeter, Want: []registry.Entry{want}}); err != nil {
			t.Fatal(err)
		}
		if n := len(r.server.Requests("BatchInstanceRequest")); n != 1 {
			t.Errorf("%d batches, want 1", n)
		}
	})
}

func TestClient_Connection(t *testing.T) {
	bubble(t, "a lost connection is reported, and everything can be written again", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Drop()
		<-r.target.Capabilities().Lost
		r.expect(t)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1")
		if got := r.client.State(); got.Lost != 1 || !got.Connected {
			t.Errorf("State() = %+v, want a connection after one that was lost", got)
		}
	})
	bubble(t, "a server that wants another connection keeps the instances until they are published on it", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Reset()
		<-r.target.Capabilities().Lost
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
	bubble(t, "a server that wants the connection gone and then dies is a lost connection", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Fail(func(nacosfake.Request) (int, string) { return 300, "starting" })
		r.server.Reset()
		time.Sleep(time.Minute)
		if !r.client.State().Connected {
			t.Error("State() without a connection, want the old one until there is another")
		}
		r.expect(t, "10.0.0.1")
		r.server.Drop()
		synctest.Wait()
		if r.client.State().Connected {
			t.Error("State() with a connection, want none after the stream ended")
		}
		r.server.Fail(nil)
		<-r.target.Capabilities().Lost
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1")
	})
}

// TestClient_Reconnects leaves nothing behind, however often.
func TestClient_Reconnects(t *testing.T) {
	bubble(t, "a hundred lost connections leave no goroutine behind", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		turn := func() int {
			r.write(t, entry(greeter, "10.0.0.1", mine))
			r.server.Drop()
			<-r.target.Capabilities().Lost
			time.Sleep(time.Minute)
			synctest.Wait()
			return runtime.NumGoroutine()
		}
		before := turn()
		for range 100 {
			turn()
		}
		if after := turn(); after > before+conformance.StrayGoroutines {
			t.Errorf("%d goroutines after a hundred reconnects, want about %d", after, before)
		}
		if n := r.server.Connections(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
	bubble(t, "a connection that ends while nothing is written is reported within seconds", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		time.Sleep(time.Hour)
		r.server.Fail(func(nacosfake.Request) (int, string) { return 300, "starting" })
		r.server.Drop()
		time.Sleep(time.Second)
		if s := r.client.State(); s.Connected || s.Lost != 1 || s.LastError == "" || time.Since(s.Since) > time.Second {
			t.Errorf("State() = %+v a second later, want a connection that was lost with its error", s)
		}
		r.server.Fail(nil)
		time.Sleep(6 * time.Second)
		if s := r.client.State(); !s.Connected || s.Again != 1 {
			t.Errorf("State() = %+v, want a second connection", s)
		}
	})
}

func TestTarget_ServerLosesData(t *testing.T) {
	bubble(t, "a server that restarts empty is not a reason to delete, and gets everything again", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Forget()
		r.server.Drop()
		<-r.target.Capabilities().Lost
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1")
		if n := len(r.server.Requests("InstanceRequest")); n != 0 {
			t.Errorf("%d requests that withdraw anything, want none", n)
		}
	})
	bubble(t, "a set that the server forgot is found missing and written again", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Forget()
		if held := r.read(t); len(held) != 0 {
			t.Fatalf("read %+v, want nothing", held)
		}
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.expect(t, "10.0.0.1")
	})
	bubble(t, "a change that no push reports is seen by the next reading", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Set(service(greeter), "app", model.Instance{Ip: "10.9.9.9", Port: 1, Enable: true, Healthy: true, Ephemeral: true})
		if n := len(r.server.Requests("SubscribeServiceRequest")); n != 0 {
			t.Errorf("%d subscriptions, want none: nothing may depend on a push", n)
		}
		if held := r.read(t); len(held) != 2 {
			t.Errorf("read %+v, want both", held)
		}
	})
	bubble(t, "a server whose clock jumps changes nothing", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		for i, skew := range []time.Duration{0, time.Minute, -time.Minute, -24 * time.Hour} {
			r.server.Skew(skew)
			want := entry(greeter, "10.0.0.1", mine, "n", string(rune('a'+i)))
			r.write(t, want)
			if held := r.read(t); len(held) != 1 || held[0].Entry != want || !held[0].Live {
				t.Errorf("read %+v with a clock off by %s, want one that is live", held, skew)
			}
		}
	})
	bubble(t, "a batch whose answer was lost is found by reading, and is there once", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		want := entry(greeter, "10.0.0.1", mine)
		r.server.Lose(func(q nacosfake.Request) bool { return q.Type == "BatchInstanceRequest" })
		if err := r.target.Write(t.Context(), change(greeter, want)); err == nil {
			t.Fatal("Write() = nil, want the error of a write without an answer")
		}
		r.server.Lose(nil)
		held := r.read(t)
		if len(held) != 1 || held[0].Entry != want || held[0].Live {
			t.Errorf("read %+v, want it, and not live", held)
		}
		r.write(t, want)
		r.expect(t, "10.0.0.1")
		if held := r.read(t); len(held) != 1 || !held[0].Live {
			t.Errorf("read %+v, want it live", held)
		}
	})
}

func TestClient_NoticesADeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Fail(func(nacosfake.Request) (int, string) { return 500, "frozen" })
		time.Sleep(20 * time.Second)
		if r.client.State().Connected {
			t.Error("State() with a connection, want none after four failed health checks")
		}
		time.Sleep(10 * time.Minute)
		if n := len(r.server.Requests("ServerCheckRequest")); n > 160 {
			t.Errorf("%d attempts to connect in ten minutes, want at most 160", n)
		}
		r.server.Fail(nil)
		time.Sleep(time.Minute)
		if !r.client.State().Connected {
			t.Error("State() without a connection, want a new one")
		}
	})
}

func TestClient_AcknowledgesPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine))
		r.server.Reset()
		time.Sleep(time.Second)
		if n := len(r.server.Requests("ConnectResetResponse")); n != 1 {
			t.Errorf("%d acknowledgements, want 1", n)
		}
	})
}

// TestTarget_InstancesHaveIDs: consumers of Kratos that have more than 25 instances
// choose among them by their ids.
func TestTarget_InstancesHaveIDs(t *testing.T) {
	bubble(t, "each instance has the id that a server gives a single one", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		r.write(t, entry(greeter, "10.0.0.1", mine), entry(greeter, "2001:db8::1", mine))
		var sent []struct {
			InstanceID string `json:"instanceId"`
		}
		if err := json.Unmarshal([]byte(stored(t, r.server.Requests("BatchInstanceRequest")[0])), &sent); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, in := range sent {
			ids = append(ids, in.InstanceID)
		}
		want := []string{
			"10.0.0.1#20000#DEFAULT#DEFAULT_GROUP@@providers:api.Greeter::",
			"2001:db8::1#20000#DEFAULT#DEFAULT_GROUP@@providers:api.Greeter::",
		}
		if !slices.Equal(ids, want) {
			t.Errorf("ids %q, want %q", ids, want)
		}
	})
}
