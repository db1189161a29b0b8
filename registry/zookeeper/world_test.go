package zookeeper_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

var _ zookeeper.Layout = (*dubbo.ZooKeeper)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	owner = "shop"
	root  = "/test"
)

// layout is the format of these tests. The value of an entry is
// key|anything|mark, of which the key is free of |.
type layout struct {
	data     bool
	replaces metadata.Replacement
}

func (layout) Parents() string { return root + "/*/nodes" }

func (layout) Parent(g registry.Group) (string, error) {
	if g != group(g.Name) || g.Name == "" {
		return "", fmt.Errorf("no group of this format: %s", g)
	}
	return root + "/" + url.QueryEscape(g.Name) + "/nodes", nil
}

func (layout) Group(parent string) (registry.Group, bool) {
	name, ok := strings.CutSuffix(strings.TrimPrefix(parent, root+"/"), "/nodes")
	name, err := url.QueryUnescape(name)
	return group(name), ok && err == nil
}

func (l layout) HasData() bool { return l.data }

func (l layout) Replaces() metadata.Replacement { return l.replaces }

func (l layout) Node(e registry.Entry) (string, []byte, error) {
	if l.data {
		return "n" + url.QueryEscape(e.Key), []byte(e.Value), nil
	}
	return "n" + url.QueryEscape(e.Value), nil, nil
}

func (l layout) Entry(g registry.Group, name string, data []byte) (registry.Entry, metadata.Mark) {
	value, err := url.QueryUnescape(strings.TrimPrefix(name, "n"))
	if l.data {
		value = string(data)
	}
	parts := strings.Split(value, "|")
	if err != nil || len(parts) < 3 {
		return registry.Entry{Group: g, Key: name, Value: name}, metadata.Mark{}
	}
	mark, _ := metadata.ParseMark(parts[len(parts)-1])
	return registry.Entry{Group: g, Key: parts[0], Value: value}, mark
}

func group(name string) registry.Group {
	return registry.Group{Kind: "test", Namespace: root, Name: name}
}

func groupN(n int) registry.Group { return group(fmt.Sprintf("api.Group%d", n)) }

func parentN(n int) string { return fmt.Sprintf("%s/api.Group%d/nodes", root, n) }

func entry(by string) func(n, i, v int) registry.Entry {
	return func(n, i, v int) registry.Entry {
		e := registry.Entry{Group: groupN(n), Key: fmt.Sprintf("tri://10.0.0.%d:20880", i)}
		e.Value = fmt.Sprintf("%s|v%d|%s", e.Key, v, metadata.NewMark(by, "b"))
		return e
	}
}

var ours, theirs = entry(owner), entry("them")

func pathOf(t testing.TB, l zookeeper.Layout, e registry.Entry) (path string, data []byte) {
	t.Helper()
	parent, err := l.Parent(e.Group)
	must(t, err)
	name, data, err := l.Node(e)
	must(t, err)
	return parent + "/" + name, data
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve starts a server that runs as long as the test.
func serve(t testing.TB) *zkfake.Server {
	t.Helper()
	s := zkfake.New(zkfake.Options{})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dial connects to a server until the test ends.
func dial(t testing.TB, s *zkfake.Server, tune ...func(*zookeeper.Options)) *zookeeper.Client {
	t.Helper()
	opts := zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial, SessionTimeout: 10 * time.Second}
	for _, f := range tune {
		f(&opts)
	}
	c, err := zookeeper.Dial(opts)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func target(t testing.TB, c *zookeeper.Client, tune ...func(*zookeeper.TargetOptions)) *zookeeper.Target {
	t.Helper()
	opts := zookeeper.TargetOptions{Owner: owner, Layouts: []zookeeper.Layout{layout{}}}
	for _, f := range tune {
		f(&opts)
	}
	target, err := zookeeper.NewTarget(c, opts)
	must(t, err)
	return target
}

func withData(o *zookeeper.TargetOptions)    { o.Layouts = []zookeeper.Layout{layout{data: true}} }
func withSession(o *zookeeper.TargetOptions) { o.Lifetime = zookeeper.Session }

// creation is a change that creates entries in a group that holds none of
// them.
func creation(entries ...registry.Entry) registry.Change {
	c := registry.Change{Group: entries[0].Group, Want: entries}
	for _, e := range entries {
		c.Put = append(c.Put, registry.Write{New: e})
	}
	return c
}

func read(t testing.TB, target registry.Target, g registry.Group) []registry.Stored {
	t.Helper()
	held, err := target.Read(t.Context(), g)
	must(t, err)
	return held
}

func write(t testing.TB, target registry.Target, c registry.Change) {
	t.Helper()
	must(t, target.Write(t.Context(), c))
}
