package zookeeper_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// alive creates the node alive of another process of the owner.
func alive(t testing.TB, server *zkfake.Server, session int64) {
	t.Helper()
	data := fmt.Sprintf(`{"host":%q,"process":%d,"timeout":%d}`, "elsewhere", 7, 10*time.Second)
	must(t, server.PutEphemeral("/xds-bridge/"+owner+"/alive", []byte(data), session))
}

// session opens a session of another process.
func session(t testing.TB, server *zkfake.Server) *zookeeper.Client {
	t.Helper()
	c := dial(t, server, func(o *zookeeper.Options) { o.SessionTimeout = 10 * time.Second })
	if _, err := target(t, c).Groups(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, "a second process of the owner is refused, and writes nothing", func(t *testing.T, server *zkfake.Server) {
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		alive(t, server, first.State().Session)
		began, tg := time.Now(), target(t, client)
		time.AfterFunc(time.Second, func() {
			if err := tg.Admission(); err == nil || errors.Is(err, zookeeper.ErrDuplicateProcess) {
				t.Errorf("Admission while it waits = %v, want an error that is not ErrDuplicateProcess", err)
			}
		})
		if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrDuplicateProcess) || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("Admit = %v, want ErrDuplicateProcess with the host", err)
		}
		if err := tg.Admission(); !errors.Is(err, zookeeper.ErrDuplicateProcess) {
			t.Errorf("Admission after the refusal = %v, want ErrDuplicateProcess", err)
		}
		if waited := time.Since(began); waited < 10*time.Second || waited > 30*time.Second {
			t.Errorf("Admit refused after %v, want 10 s to 30 s, as the session lasts", waited)
		}
		if err := tg.Write(t.Context(), creation(ours(0, 0, 0))); !errors.Is(err, zookeeper.ErrDuplicateProcess) || server.Children(parentN(0)) != nil {
			t.Errorf("Write after the refusal = %v, nodes %q, want ErrDuplicateProcess and no node", err, server.Children(parentN(0)))
		}
	})
	inVirtualTime(t, "one that was killed elsewhere is waited for", func(t *testing.T, server *zkfake.Server) {
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		alive(t, server, first.State().Session)
		time.AfterFunc(9*time.Second, func() { server.Expire(first.State().Session) })
		tg := target(t, client)
		must(t, tg.Admit(t.Context()))
		must(t, tg.Admission())
	})
	inVirtualTime(t, "one that was refused is admitted when the other has gone for good, and not when it lost its session", func(t *testing.T, server *zkfake.Server) {
		first, again, client := session(t, server), session(t, server), dial(t, server)
		defer first.Close()
		defer again.Close()
		defer client.Close()
		alive(t, server, first.State().Session)
		tg := target(t, client)
		if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrDuplicateProcess) {
			t.Fatal(err)
		}
		server.Expire(first.State().Session)
		time.AfterFunc(9*time.Second, func() { alive(t, server, again.State().Session) })
		if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrDuplicateProcess) {
			t.Errorf("Admit while the other has a new session = %v, want ErrDuplicateProcess", err)
		}
		server.Expire(again.State().Session)
		must(t, tg.Admit(t.Context()))
		must(t, tg.Write(t.Context(), creation(ours(0, 0, 0))))
	})
	inVirtualTime(t, "another session of this process is not another process, although the system cannot tell", func(t *testing.T, server *zkfake.Server) {
		before, client := session(t, server), dial(t, server)
		defer before.Close()
		defer client.Close()
		alive(t, server, before.State().Session)
		began := time.Now()
		must(t, target(t, client, func(o *zookeeper.TargetOptions) {
			o.Ours = func(session int64) bool { return session == before.State().Session }
		}).Admit(t.Context()))
		if time.Since(began) > 0 {
			t.Error("Admit next to a session of this process waited, want no wait")
		}
	})
	inVirtualTime(t, "leases may allow it", func(t *testing.T, server *zkfake.Server) {
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		alive(t, server, first.State().Session)
		began := time.Now()
		must(t, target(t, client, func(o *zookeeper.TargetOptions) { o.Shared = true }).Admit(t.Context()))
		if time.Since(began) > 0 {
			t.Error("Admit with Shared waited, want no wait")
		}
	})
}

// aliveText returns the record of this process in the node alive, after a change.
func aliveText(t testing.TB, server *zkfake.Server, change map[string]any) []byte {
	t.Helper()
	const path = "/xds-bridge/" + owner + "/alive"
	client := dial(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); target(t, client).KeepAlive(ctx) }()
	var shown zkfake.Node
	for there := false; !there; time.Sleep(time.Millisecond) {
		shown, there = server.Get(path)
	}
	cancel()
	<-ended
	server.Delete(path)
	client.Close()
	var all map[string]any
	must(t, json.Unmarshal(shown.Data, &all))
	maps.Copy(all, change)
	data, err := json.Marshal(all)
	must(t, err)
	return data
}

// endedProcess returns the number of a process of this machine that has ended.
func endedProcess(t testing.TB) int {
	t.Helper()
	c := exec.CommandContext(t.Context(), "true")
	must(t, c.Run())
	return c.Process.Pid
}

func TestAdmit_KilledLocalProcess(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/ns/pid"); err != nil {
		t.Skip("this system has no /proc/self/ns/pid, by which a process of it is identified")
	}
	for name, change := range map[string]map[string]any{
		"an ended process":                          {"process": endedProcess(t)},
		"its number is now ours, as in a container": {"started": "1"},
		"its number is now that of another process": {"process": os.Getppid(), "started": "1"},
		"our own, of a session before":              {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			data := aliveText(t, server, change)
			must(t, server.PutEphemeral("/xds-bridge/"+owner+"/alive", data, session(t, server).State().Session))
			tg := target(t, dial(t, server))
			if who, err := tg.Alive(t.Context(), owner); err != nil || who != "" {
				t.Errorf("Alive = %q, %v, want none: the process has ended", who, err)
			}
			began := time.Now()
			must(t, tg.Admit(t.Context()))
			if waited := time.Since(began); waited > 5*time.Second {
				t.Errorf("Admit waited for %v, want 5 s at most", waited)
			}
		})
	}
}

// TestAdmit_SharedHostName shows that a process whose session
// runs is found, although it has our host name and our number, or a number that
// no process has here: two containers on the network of one node.
func TestAdmit_SharedHostName(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]any{
		"our number in another namespace":                      {"system": "a boot pid:[1]", "started": "1"},
		"a number that is none here":                           {"system": "a boot pid:[1]", "process": 4190000},
		"a number that is none here, of a version before":      {"system": "", "process": 4190000},
		"our number, where a system does not say who it is":    {"system": "", "started": ""},
		"the process that started it, which runs, and is ours": {"process": os.Getppid(), "started": ""},
	} {
		inVirtualTime(t, name, func(t *testing.T, server *zkfake.Server) {
			data := aliveText(t, server, change)
			first, client := session(t, server), dial(t, server)
			defer first.Close()
			defer client.Close()
			must(t, server.PutEphemeral("/xds-bridge/"+owner+"/alive", data, first.State().Session))
			tg := target(t, client)
			if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrDuplicateProcess) {
				t.Errorf("Admit next to another process of the host name = %v, want ErrDuplicateProcess", err)
			}
			if who, err := tg.Alive(t.Context(), owner); err != nil || who == "" { // as purge, adopt and release ask
				t.Errorf("Alive = %q, %v, want a process", who, err)
			}
		})
	}
}

// TestAdmit_OneReplicaAndTwo shows that a process without a lease and
// those with one never write at the same time.
func TestAdmit_OneReplicaAndTwo(t *testing.T) {
	t.Parallel()
	leased := func(o *zookeeper.TargetOptions) {
		o.Shared = true
		o.Fence = func() (zookeeper.Fence, bool) {
			return zookeeper.Fence{Term: 7, Holder: "us"}, true
		}
	}
	runs := func(t *testing.T, server *zkfake.Server, tune ...func(*zookeeper.TargetOptions)) (end func()) {
		t.Helper()
		client := dial(t, server)
		tg := target(t, client, tune...)
		ctx, cancel := context.WithCancel(t.Context())
		must(t, tg.Admit(ctx))
		write(t, tg, creation(ours(0, 0, 0)))
		ended := make(chan struct{})
		go func() { defer close(ended); tg.KeepAlive(ctx) }()
		synctest.Wait()
		return func() { cancel(); <-ended; client.Close() }
	}
	inVirtualTime(t, "a process with a lease is refused next to one without, with the remedy", func(t *testing.T, server *zkfake.Server) {
		data := aliveText(t, server, map[string]any{"system": "elsewhere"})
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		must(t, server.PutEphemeral("/xds-bridge/"+owner+"/alive", data, first.State().Session))
		tg := target(t, client, leased)
		if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrDuplicateProcess) || !strings.Contains(err.Error(), "without replicas.lease") {
			t.Errorf("Admit = %v, want ErrDuplicateProcess with its remedy", err)
		}
		if err := tg.Write(t.Context(), creation(ours(1, 0, 0))); !errors.Is(err, zookeeper.ErrDuplicateProcess) {
			t.Errorf("Write after the refusal = %v, want ErrDuplicateProcess", err)
		}
	})
	inVirtualTime(t, "one with a lease waits for one without that is killed", func(t *testing.T, server *zkfake.Server) {
		data := aliveText(t, server, map[string]any{"system": "elsewhere"})
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		must(t, server.PutEphemeral("/xds-bridge/"+owner+"/alive", data, first.State().Session))
		time.AfterFunc(8*time.Second, func() { server.Expire(first.State().Session) })
		must(t, target(t, client, leased).Admit(t.Context()))
	})
	inVirtualTime(t, "a process without a lease is refused next to replicas", func(t *testing.T, server *zkfake.Server) {
		data := aliveText(t, server, map[string]any{"system": "elsewhere", "writes": "shared"})
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		must(t, server.PutEphemeral("/xds-bridge/"+owner+"/alive", data, first.State().Session))
		if err := target(t, client).Admit(t.Context()); !errors.Is(err, zookeeper.ErrDuplicateProcess) || !strings.Contains(err.Error(), "with replicas.lease") {
			t.Errorf("Admit = %v, want ErrDuplicateProcess with its remedy", err)
		}
	})
	inVirtualTime(t, "one without a lease waits where the next of several replicas has not shown yet that it runs", func(t *testing.T, server *zkfake.Server) {
		runs(t, server, leased)() // the one that showed it for all ends
		data := aliveText(t, server, map[string]any{"system": "elsewhere", "writes": "shared"})
		other, client := session(t, server), dial(t, server)
		defer other.Close()
		defer client.Close()
		time.AfterFunc(9*time.Second, func() {
			_ = server.PutEphemeral("/xds-bridge/"+owner+"/alive", data, other.State().Session)
		})
		tg := target(t, client)
		if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrDuplicateProcess) {
			t.Errorf("Admit next to the next replica = %v, want ErrDuplicateProcess", err)
		}
		server.Expire(other.State().Session)
		must(t, tg.Admit(t.Context()))
		if _, there := server.Get("/xds-bridge/" + owner + "/fence"); there {
			t.Error("the fence exists after Admit, want it deleted: every start would wait")
		}
		began := time.Now()
		must(t, target(t, client).Admit(t.Context()))
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("Admit of the next start waited for %v, want a second at most", waited)
		}
	})
}

// TestAdmit_NewLeader shows that a process which was
// killed is not a duplicate, although its session outlives its timeout.
func TestAdmit_NewLeader(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, "a leader change in the middle of the wait", func(t *testing.T, server *zkfake.Server) {
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		alive(t, server, first.State().Session)
		time.AfterFunc(9*time.Second, server.DropConnections)
		time.AfterFunc(20*time.Second, func() { server.Expire(first.State().Session) })
		must(t, target(t, client).Admit(t.Context()))
	})
}

// TestAdmit_WriteTimeout shows that a write does not wait longer than
// its context for another that waits for the other process.
func TestAdmit_WriteTimeout(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, "next to a start that waits", func(t *testing.T, server *zkfake.Server) {
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		alive(t, server, first.State().Session)
		tg := target(t, client)
		admitted := make(chan error)
		go func() { admitted <- tg.Admit(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := tg.Write(ctx, creation(ours(0, 0, 0))); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("Write = %v after %v, want DeadlineExceeded within a second", err, time.Since(began))
		}
		if err := <-admitted; !errors.Is(err, zookeeper.ErrDuplicateProcess) {
			t.Error(err)
		}
	})
}

func TestAdmit_ChangedOwner(t *testing.T) {
	t.Parallel()
	as := func(name string, bridges ...string) func(*zookeeper.TargetOptions) {
		return func(o *zookeeper.TargetOptions) { o.Owner, o.Bridges = name, bridges }
	}
	const same = "mesh-to-zk from mesh into /test"
	for name, tt := range map[string]struct {
		before func(t *testing.T, s *zkfake.Server)
		now    func(*zookeeper.TargetOptions)
		want   error
	}{
		"by mistake":                {now: as("shpo", same), want: zookeeper.ErrOwner},
		"not at all":                {now: as(owner, same)},
		"one bridge of two":         {now: as("shpo", "other", same), want: zookeeper.ErrOwner},
		"another bridge":            {now: as("bank", "bank-to-zk from mesh into /test")},
		"for one that wrote before": {now: as("bank", same), before: func(t *testing.T, s *zkfake.Server) { must(t, s.Put("/xds-bridge/bank/bridges", nil)) }},
		"while the other runs": {now: as("bank", same), before: func(t *testing.T, s *zkfake.Server) {
			alive(t, s, session(t, s).State().Session)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			write(t, target(t, dial(t, server), as(owner, same, "another")), creation(ours(0, 0, 0)))
			if tt.before != nil {
				tt.before(t, server)
			}
			tg := target(t, dial(t, server), tt.now)
			err := tg.Admit(t.Context())
			if !errors.Is(err, tt.want) {
				t.Errorf("Admit = %v, want %v", err, tt.want)
			}
			if tt.want != nil && (!strings.Contains(err.Error(), "adopt --from shop") || tg.Write(t.Context(), creation(ours(1, 0, 0))) == nil) {
				t.Errorf("Admit = %v and a Write was applied, want an error with the command adopt, and no Write", err)
			}
			if tt.want != nil { // an operator decides by adopt or release
				must(t, server.Put("/xds-bridge/shpo/bridges", []byte(same)))
				if err := tg.Admit(t.Context()); !errors.Is(err, tt.want) {
					t.Errorf("Admit while entries of the predecessor are adopted = %v, want %v", err, tt.want)
				}
				server.Delete("/xds-bridge/" + owner + "/bridges")
				must(t, tg.Admit(t.Context()))
				must(t, tg.Write(t.Context(), creation(ours(1, 0, 0))))
			}
		})
	}
}

// TestAdmit_StaleBridges shows that the list of bridges alone refuses no
// owner: a user who may write to the registry can create one for any bridge.
func TestAdmit_StaleBridges(t *testing.T) {
	t.Parallel()
	const same = "mesh-to-zk from mesh into /test"
	for name, tt := range map[string]struct {
		nodes []string // next to the list
		want  error
	}{
		"alone":                     {nil, nil},
		"next to a ledger":          {[]string{"ledger"}, zookeeper.ErrOwner},
		"next to ephemeral entries": {[]string{"session"}, zookeeper.ErrOwner},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			must(t, server.Put("/xds-bridge/x/bridges", []byte(same)))
			for _, node := range tt.nodes {
				must(t, server.Put("/xds-bridge/x/"+node, nil))
			}
			tg := target(t, dial(t, server), func(o *zookeeper.TargetOptions) { o.Bridges = []string{same} })
			if err := tg.Admit(t.Context()); !errors.Is(err, tt.want) {
				t.Errorf("Admit = %v, want %v", err, tt.want)
			}
		})
	}
}
