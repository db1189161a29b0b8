package zookeeper_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inTime runs a test in virtual time, with a server in memory.
func inTime(t *testing.T, name string, test func(*testing.T, *zkfake.Server)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			t.Helper()
			server := zkfake.New(zkfake.Options{})
			defer server.Close() //nolint:errcheck // it has no listener
			test(t, server)
		})
	})
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connect(t testing.TB, s *zkfake.Server) *zk.Conn {
	t.Helper()
	dial := func(network, address string, _ time.Duration) (net.Conn, error) {
		return s.Dial(t.Context(), network, address)
	}
	conn, _, err := zk.Connect([]string{"127.0.0.1:1"}, 10*time.Second, zk.WithDialer(dial), zk.WithLogger(silent{}))
	must(t, err)
	return conn
}

var open = zk.WorldACL(zk.PermAll)

func TestServer_Nodes(t *testing.T) {
	t.Parallel()
	inTime(t, "a node is created, read, set, listed and deleted", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		_, err := c.Create("/a", []byte("1"), 0, open)
		must(t, err)
		_, err = c.Create("/a/b", nil, 0, open)
		must(t, err)
		stat, err := c.Set("/a", []byte("22"), 0)
		must(t, err)
		data, got, err := c.Get("/a")
		must(t, err)
		if string(data) != "22" || stat.Version != 1 || got.NumChildren != 1 || got.DataLength != 2 || got.Czxid >= got.Mzxid || got.Cversion != 1 {
			t.Errorf("%q, %+v", data, got)
		}
		names, _, err := c.Children("/a")
		must(t, err)
		if !slices.Equal(names, []string{"b"}) {
			t.Errorf("%q", names)
		}
		for want, err := range map[error]error{
			zk.ErrNotEmpty:   c.Delete("/a", -1),
			zk.ErrBadVersion: second(c.Set("/a", nil, 7)),
			zk.ErrNoNode:     c.Delete("/x", -1),
			zk.ErrNodeExists: second(c.Create("/a", nil, 0, open)),
			zk.ErrInvalidACL: second(c.Create("/y", nil, 0, zk.DigestACL(1, "", "")[:0])),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		must(t, c.Delete("/a/b", 0))
		must(t, c.Delete("/a", 1))
		if ok, _, err := c.Exists("/a"); ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	})
	inTime(t, "ephemeral nodes have no children", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		path, err := c.Create("/n", nil, zk.FlagEphemeral, open)
		must(t, err)
		if _, err := c.Create(path+"/x", nil, 0, open); !errors.Is(err, zk.ErrNoChildrenForEphemerals) {
			t.Error(err)
		}
	})
	inTime(t, "a transaction is all or nothing", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		must(t, s.Put("/a", []byte("1")))
		before, _ := s.Get("/a")
		results, err := c.Multi(
			&zk.CreateRequest{Path: "/b", Acl: open}, &zk.CreateRequest{Path: "/b/c", Acl: open, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: "/a", Data: []byte("2"), Version: -1}, &zk.DeleteRequest{Path: "/b/c", Version: -1},
			&zk.CheckVersionRequest{Path: "/a", Version: 7}, &zk.DeleteRequest{Path: "/a", Version: -1})
		if !errors.Is(err, zk.ErrBadVersion) || len(results) != 6 || results[3].Error != nil || !errors.Is(results[4].Error, zk.ErrBadVersion) {
			t.Errorf("%v, %+v", err, results)
		}
		if after, _ := s.Get("/a"); string(after.Data) != "1" || after.Stat != before.Stat || len(s.Paths("/")) != 1 {
			t.Errorf("%+v, %q", after, s.Paths("/"))
		}
		_, err = c.Multi(&zk.DeleteRequest{Path: "/a", Version: 0}, &zk.CreateRequest{Path: "/a", Acl: open}, &zk.CheckVersionRequest{Path: "/a"})
		must(t, err)
	})
	for _, p := range []string{"", "a", "/a/", "//a", "/a/../b", "/.", "/a\x00", "/\x1f", "/😀", "/\ue000", "/\ufffe", "/\xff"} {
		if err := zkfake.New(zkfake.Options{}).Put(p, nil); !errors.Is(err, zkfake.ErrNode) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestServer_Sessions(t *testing.T) {
	t.Parallel()
	inTime(t, "a silent session ends after its timeout, with its nodes", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		_, err := c.Create("/e", nil, zk.FlagEphemeral, open)
		must(t, err)
		time.Sleep(time.Hour) // its pings keep it
		if len(s.Children("/")) != 1 {
			t.Fatal("gone while it lived")
		}
		s.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{Cut: zkfake.CutBefore} })
		s.DropConnections()
		time.Sleep(9 * time.Second)
		if len(s.Sessions()) != 1 {
			t.Error("gone too soon")
		}
	})
	inTime(t, "an expired session is refused, and another begins", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		_, _, err := c.Exists("/")
		must(t, err)
		id := c.SessionID()
		s.Expire(id)
		s.Expire(id)
		time.Sleep(5 * time.Second)
		if _, _, err := c.Exists("/"); err != nil || c.SessionID() == id {
			t.Errorf("%v, %#x", err, c.SessionID())
		}
	})
	inTime(t, "one that has seen more than the server has is hung up on, as by a real server", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		must(t, s.Put("/before", nil))
		_, _, err := c.Get("/before")
		must(t, err)
		before := s.Snapshot()
		_, err = c.Create("/after", nil, 0, open)
		must(t, err)
		s.Restore(before)
		time.Sleep(5 * time.Second)
		if c.State() == zk.StateHasSession || len(s.Sessions()) != 1 {
			t.Errorf("%v, %v", c.State(), s.Sessions())
		}
		if got := s.Children("/"); !slices.Equal(got, []string{"before"}) {
			t.Errorf("it holds %v", got)
		}
		must(t, s.Put("/again", nil))
		time.Sleep(5 * time.Second)
		if _, _, err := c.Get("/again"); err != nil {
			t.Errorf("refused though the server has as much by now: %v", err)
		}
	})
	inTime(t, "watches are notified once", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		must(t, s.Put("/a", nil))
		_, _, list, err := c.ChildrenW("/a")
		must(t, err)
		_, _, data, err := c.GetW("/a")
		must(t, err)
		_, _, exists, err := c.ExistsW("/b")
		must(t, err)
		must(t, s.Put("/a/x", nil))
		if e := <-list; e.Type != zk.EventNodeChildrenChanged || e.Path != "/a" {
			t.Errorf("%+v", e)
		}
		_, _, list, err = c.ChildrenW("/a")
		must(t, err)
		must(t, s.Put("/a", []byte("1")))
		must(t, s.Put("/a/y", nil))
		must(t, s.Put("/b", nil))
		for want, ch := range map[zk.EventType]<-chan zk.Event{
			zk.EventNodeDataChanged: data, zk.EventNodeChildrenChanged: list, zk.EventNodeCreated: exists,
		} {
			if e := <-ch; e.Type != want {
				t.Errorf("%+v, want %v", e, want)
			}
		}
		_, _, data, err = c.GetW("/a")
		must(t, err)
		s.Delete("/a")
		if e := <-data; e.Type != zk.EventNodeDeleted {
			t.Errorf("%+v", e)
		}
	})
}

func TestServer_ACLs(t *testing.T) {
	t.Parallel()
	inTime(t, "digest and auth let the user in and nobody else", func(t *testing.T, s *zkfake.Server) {
		c, other := connect(t, s), connect(t, s)
		defer c.Close()
		defer other.Close()
		must(t, c.AddAuth("digest", []byte("u:p")))
		_, err := c.Create("/a", nil, 0, zk.AuthACL(zk.PermAll))
		must(t, err)
		acl, _, err := c.GetACL("/a")
		must(t, err)
		if !slices.Equal(acl, zk.DigestACL(zk.PermAll, "u", "p")) {
			t.Errorf("%v", acl)
		}
		for what, err := range map[string]error{
			"get":      second2(other.Get("/a")),
			"children": second2(other.Children("/a")),
			"set":      second(other.Set("/a", nil, -1)),
			"create":   second(other.Create("/a/b", nil, 0, open)),
			"acl":      second(other.SetACL("/a", open, -1)),
		} {
			if !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := other.Create("/c", nil, 0, zk.AuthACL(zk.PermAll)); !errors.Is(err, zk.ErrInvalidACL) {
			t.Errorf("auth of nobody: %v", err)
		}
		_, err = c.SetACL("/a", open, -1)
		must(t, err)
		_, err = other.Create("/a/b", nil, 0, open)
		must(t, err)
		must(t, other.Delete("/a/b", -1))
	})
}

func second2[T, U any](_ T, _ U, err error) error { return err }

func TestServer_Faults(t *testing.T) {
	t.Parallel()
	inTime(t, "a request is delayed, denied, cut before or after", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		fault := zkfake.Fault{Delay: time.Second}
		s.SetFault(func(r zkfake.Request) zkfake.Fault {
			if r.Op == zkfake.OpCreate {
				return fault
			}
			return zkfake.Fault{}
		})
		start := time.Now()
		_, err := c.Create("/delayed", nil, 0, open)
		if err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		fault = zkfake.Fault{Code: -102}
		if _, err := c.Create("/denied", nil, 0, open); !errors.Is(err, zk.ErrNoAuth) {
			t.Error(err)
		}
		fault = zkfake.Fault{Cut: zkfake.CutBefore}
		if _, err := c.Create("/before", nil, 0, open); !errors.Is(err, zk.ErrConnectionClosed) {
			t.Error(err)
		}
		time.Sleep(2 * time.Second) // until it is connected again: a request before that may be given up
		fault = zkfake.Fault{Cut: zkfake.CutAfter}
		if _, err := c.Create("/after", nil, 0, open); !errors.Is(err, zk.ErrConnectionClosed) {
			t.Error(err)
		}
		if got := s.Children("/"); !slices.Equal(got, []string{"after", "delayed"}) {
			t.Errorf("%q", got)
		}
	})
	inTime(t, "a packet beyond the limit cuts the connection", func(t *testing.T, s *zkfake.Server) {
		c := connect(t, s)
		defer c.Close()
		if _, err := c.Create("/a", make([]byte, 1<<20), 0, open); err == nil || len(s.Children("/")) != 0 {
			t.Errorf("%v, %q", err, s.Children("/"))
		}
	})
}

func TestServer_Words(t *testing.T) {
	t.Parallel()
	server := zkfake.New(zkfake.Options{})
	address, err := server.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	defer server.Close() //nolint:errcheck // checked below
	for word, want := range map[string]string{"ruok": "imok", "srvr": "Zookeeper version: " + zkfake.Version} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		must(t, err)
		_, err = io.WriteString(conn, word)
		must(t, err)
		answer, err := io.ReadAll(conn)
		must(t, err)
		must(t, conn.Close())
		if !strings.HasPrefix(string(answer), want) {
			t.Errorf("%s: %q", word, answer)
		}
	}
	must(t, server.Close())
	if _, err := server.Listen(t.Context(), "127.0.0.1:0"); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// FuzzServer sends arbitrary bytes after a proper greeting, and before it.
func FuzzServer(f *testing.F) {
	greeting := []byte("\x00\x00\x00\x2c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10" + strings.Repeat("\x00", 16))
	create := "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x02/a\xff\xff\xff\xff\x00\x00\x00\x01\x00\x00\x00\x1f\x00\x00\x00\x05world\x00\x00\x00\x06anyone\x00\x00\x00\x00"
	f.Add([]byte(create), true)
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x0e\x00\x00\x00\x02\x00\xff\xff\xff\xff\x00\x00\x00\x02/a\x00\x00\x00\x00\xff\xff\xff\xff\x01\xff\xff\xff\xff"), true)
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x65\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff"), true)
	f.Add(greeting, false)
	f.Fuzz(func(t *testing.T, b []byte, greet bool) {
		if len(b) > 1<<16 {
			return
		}
		server := zkfake.New(zkfake.Options{})
		conn, err := server.Dial(t.Context(), "", "")
		must(t, err)
		go io.Copy(io.Discard, conn) //nolint:errcheck // whatever it says
		if greet {
			if _, err := conn.Write(greeting); err != nil {
				t.Fatal(err)
			}
			b = append([]byte{0, 0, byte(len(b) >> 8), byte(len(b))}, b...)
		}
		_, _ = conn.Write(b) // the server may have cut it
		must(t, conn.Close())
		must(t, server.Close())
		for _, p := range server.Paths("/") {
			if err := server.Put(p, nil); err != nil {
				t.Errorf("it holds %q: %v", p, err)
			}
		}
	})
}
