package zookeeper_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper/zktest"
)

// alive is what another process of the owner shows.
func alive(t testing.TB, server *zktest.Server, session int64, host string, process int) {
	t.Helper()
	data := fmt.Sprintf(`{"host":%q,"process":%d,"timeout":%d}`, host, process, 10*time.Second)
	must(t, server.PutEphemeral("/xds-bridge/"+owner+"/alive", []byte(data), session))
}

// session opens a session of another process.
func session(t testing.TB, server *zktest.Server) *zookeeper.Client {
	t.Helper()
	c := dial(t, server, func(o *zookeeper.Options) { o.SessionTimeout = 10 * time.Second })
	if _, err := target(t, c).Groups(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAdmit_F44(t *testing.T) {
	t.Parallel()
	inTime(t, "a second process of the owner is refused, and writes nothing", func(t *testing.T, server *zktest.Server) {
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		alive(t, server, first.State().Session, "elsewhere", 7)
		began, tg := time.Now(), target(t, client)
		if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrTwin) || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("%v", err)
		}
		if waited := time.Since(began); waited < 10*time.Second || waited > 30*time.Second {
			t.Errorf("it was decided after %v, want after the time of a session", waited)
		}
		if err := tg.Write(t.Context(), creating(ours(0, 0, 0))); !errors.Is(err, zookeeper.ErrTwin) || server.Children(folderN(0)) != nil {
			t.Errorf("written all the same: %v", err)
		}
	})
	inTime(t, "one that was killed elsewhere is waited for", func(t *testing.T, server *zktest.Server) {
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		alive(t, server, first.State().Session, "elsewhere", 7)
		time.AfterFunc(9*time.Second, func() { server.Expire(first.State().Session) })
		must(t, target(t, client).Admit(t.Context()))
	})
	inTime(t, "one that was refused is admitted when the other has gone for good, and not when it lost its session", func(t *testing.T, server *zktest.Server) {
		first, again, client := session(t, server), session(t, server), dial(t, server)
		defer first.Close()
		defer again.Close()
		defer client.Close()
		alive(t, server, first.State().Session, "elsewhere", 7)
		tg := target(t, client)
		if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrTwin) {
			t.Fatal(err)
		}
		server.Expire(first.State().Session)
		time.AfterFunc(9*time.Second, func() { alive(t, server, again.State().Session, "elsewhere", 7) })
		if err := tg.Admit(t.Context()); !errors.Is(err, zookeeper.ErrTwin) {
			t.Errorf("admitted beside a process that had lost its session: %v", err)
		}
		server.Expire(again.State().Session)
		must(t, tg.Admit(t.Context()))
		must(t, tg.Write(t.Context(), creating(ours(0, 0, 0))))
	})
	inTime(t, "leases may allow it", func(t *testing.T, server *zktest.Server) {
		first, client := session(t, server), dial(t, server)
		defer first.Close()
		defer client.Close()
		alive(t, server, first.State().Session, "elsewhere", 7)
		began := time.Now()
		must(t, target(t, client, func(o *zookeeper.TargetOptions) { o.Shared = true }).Admit(t.Context()))
		if time.Since(began) > 0 {
			t.Error("it waited")
		}
	})
}

func TestAdmit_WhatAKilledProcessOfThisMachineLeftIsNotWaitedFor_F01(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	must(t, err)
	ended := exec.CommandContext(t.Context(), "true")
	must(t, ended.Run())
	for name, process := range map[string]int{"an ended process": ended.Process.Pid, "our own number, as in a container": os.Getpid()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			alive(t, server, session(t, server).State().Session, host, process)
			began := time.Now()
			must(t, target(t, dial(t, server)).Admit(t.Context()))
			if waited := time.Since(began); waited > 5*time.Second {
				t.Errorf("it waited for %v", waited)
			}
		})
	}
}

func TestAdmit_AnOwnerThatWasChangedIsRefused_F10(t *testing.T) {
	t.Parallel()
	as := func(name string, bridges ...string) func(*zookeeper.TargetOptions) {
		return func(o *zookeeper.TargetOptions) { o.Owner, o.Bridges = name, bridges }
	}
	const same = "mesh-to-zk from mesh into /test"
	for name, tt := range map[string]struct {
		before func(t *testing.T, s *zktest.Server)
		now    func(*zookeeper.TargetOptions)
		want   error
	}{
		"by mistake":                {now: as("shpo", same), want: zookeeper.ErrOwner},
		"not at all":                {now: as(owner, same)},
		"one bridge of two":         {now: as("shpo", "other", same), want: zookeeper.ErrOwner},
		"another bridge":            {now: as("bank", "bank-to-zk from mesh into /test")},
		"for one that wrote before": {now: as("bank", same), before: func(t *testing.T, s *zktest.Server) { must(t, s.Put("/xds-bridge/bank/bridges", nil)) }},
		"while the other lives (F45)": {now: as("bank", same), before: func(t *testing.T, s *zktest.Server) {
			alive(t, s, session(t, s).State().Session, "elsewhere", 7)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			write(t, target(t, dial(t, server), as(owner, same, "another")), creating(ours(0, 0, 0)))
			if tt.before != nil {
				tt.before(t, server)
			}
			tg := target(t, dial(t, server), tt.now)
			err := tg.Admit(t.Context())
			if !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if tt.want != nil && (!strings.Contains(err.Error(), "adopt --from shop") || tg.Write(t.Context(), creating(ours(1, 0, 0))) == nil) {
				t.Errorf("%v, or it was written all the same", err)
			}
			if tt.want != nil { // a person decides, as adopt and release do it
				must(t, server.Put("/xds-bridge/shpo/bridges", []byte(same)))
				if err := tg.Admit(t.Context()); !errors.Is(err, tt.want) {
					t.Errorf("admitted while its predecessor's entries are being adopted: %v", err)
				}
				server.Delete("/xds-bridge/" + owner + "/bridges")
				must(t, tg.Admit(t.Context()))
				must(t, tg.Write(t.Context(), creating(ours(1, 0, 0))))
			}
		})
	}
}
