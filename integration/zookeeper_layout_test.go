package integration_test

import (
	"fmt"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

const zookeeperOwner = "shop"

// zookeeperData is a format whose nodes are named by key and hold the value
// as data: text|mark.
type zookeeperData struct{}

func (zookeeperData) Parents() string { return "/data/*" }
func (zookeeperData) HasData() bool   { return true }

func (zookeeperData) Replaces() metadata.Replacement { return metadata.InPlace }

func (zookeeperData) Parent(g registry.Group) (string, error) {
	if g.Kind != "data" {
		return "", fmt.Errorf("group %s is of another format", g)
	}
	return "/data/" + url.QueryEscape(g.Name), nil
}

func (zookeeperData) Group(parent string) (registry.Group, bool) {
	name, err := url.QueryUnescape(strings.TrimPrefix(parent, "/data/"))
	return registry.Group{Kind: "data", Name: name}, err == nil
}

func (zookeeperData) Node(e registry.Entry) (string, []byte, error) {
	return "n" + url.QueryEscape(e.Key), []byte(e.Value), nil
}

func (zookeeperData) Entry(g registry.Group, name string, data []byte) (registry.Entry, metadata.Mark) {
	key, err := url.QueryUnescape(strings.TrimPrefix(name, "n"))
	if err != nil {
		key = name
	}
	mark, _ := metadata.ParseMark(string(data[strings.LastIndexByte(string(data), '|')+1:]))
	return registry.Entry{Group: g, Key: key, Value: string(data)}, mark
}

// zookeeperFormat makes the entries of a format; the numbers are those of
// package conformance.
type zookeeperFormat struct {
	layout  zookeeper.Layout
	group   func(n int) registry.Group
	entry   func(owner string, n, i, v int) registry.Entry
	hostile func(text string) registry.Entry
}

func dataFormat() zookeeperFormat {
	group := func(n int) registry.Group { return registry.Group{Kind: "data", Name: fmt.Sprintf("group-%d", n)} }
	mark := func(owner string) string { return "|" + metadata.NewMark(owner, "b").String() }
	return zookeeperFormat{
		layout: zookeeperData{}, group: group,
		entry: func(owner string, n, i, v int) registry.Entry {
			return registry.Entry{Group: group(n), Key: fmt.Sprintf("10.0.0.%d:80", i), Value: fmt.Sprintf("v%d%s", v, mark(owner))}
		},
		hostile: func(text string) registry.Entry {
			return registry.Entry{Group: group(0), Key: "k" + text, Value: text + mark(zookeeperOwner)}
		},
	}
}

// dubboFormat is the real codec between its tests and a real server.
func dubboFormat(t testing.TB) zookeeperFormat {
	t.Helper()
	codecs := make(map[string]*dubbo.ZooKeeper)
	for _, owner := range []string{zookeeperOwner, "them"} {
		codec, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark(owner, "b")})
		if err != nil {
			t.Fatal(err)
		}
		codecs[owner] = codec
	}
	encode := func(owner, iface, application, host string, weight int) registry.Entry {
		entries, err := codecs[owner].Encode(&registry.Service{
			Name: "a.b.svc.cluster.local:20000", Application: application,
			Interfaces: []registry.Interface{{Name: iface}},
			Endpoints:  []registry.Endpoint{{Host: host, Port: 20000, Weight: uint32(weight)}},
		})
		if err != nil || len(entries) != 1 {
			t.Fatalf("encode: %v, %v", entries, err)
		}
		return entries[0]
	}
	name := func(n int) string { return fmt.Sprintf("api.Greeter%d", n) }
	return zookeeperFormat{
		layout: codecs[zookeeperOwner],
		group: func(n int) registry.Group {
			return registry.Group{Kind: dubbo.Kind, Namespace: dubbo.DefaultRoot, Name: name(n)}
		},
		entry: func(owner string, n, i, v int) registry.Entry {
			return encode(owner, name(n), "", fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), v+1)
		},
		hostile: func(text string) registry.Entry { return encode(zookeeperOwner, name(0), text, "10.0.0.1", 1) },
	}
}

func (f zookeeperFormat) node(t testing.TB, e registry.Entry) (at, data string) {
	t.Helper()
	parent, err := f.layout.Parent(e.Group)
	if err != nil {
		t.Fatal(err)
	}
	name, b, err := f.layout.Node(e)
	if err != nil {
		t.Fatal(err)
	}
	return path.Join(parent, name), string(b)
}

// zookeeperClient connects to servers for the length of the test.
func zookeeperClient(t testing.TB, o zookeeper.Options) *zookeeper.Client {
	t.Helper()
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 10 * time.Second
	}
	client, err := zookeeper.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func zookeeperTarget(t testing.TB, client *zookeeper.Client, f zookeeperFormat, tune ...func(*zookeeper.TargetOptions)) *zookeeper.Target {
	t.Helper()
	o := zookeeper.TargetOptions{Owner: zookeeperOwner, Layouts: []zookeeper.Layout{f.layout}}
	for _, f := range tune {
		f(&o)
	}
	target, err := zookeeper.NewTarget(client, o)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func zookeeperSession(o *zookeeper.TargetOptions) { o.Lifetime = zookeeper.Session }

// creates is the change that creates our entries, of which the group
// holds none.
func (f zookeeperFormat) creates(n, from, to int) registry.Change {
	c := registry.Change{Group: f.group(n)}
	for i := from; i < to; i++ {
		e := f.entry(zookeeperOwner, n, i, 0)
		c.Put = append(c.Put, registry.Write{New: e})
		c.Want = append(c.Want, e)
	}
	return c
}

// eventuallyReads reads until the connection lets it.
func eventuallyReads(t testing.TB, target *zookeeper.Target, g registry.Group) []registry.Stored {
	t.Helper()
	var held []registry.Stored
	harness.Eventually(t, 20*time.Second, "a reading of "+g.String(), func() (err error) {
		held, err = target.Read(t.Context(), g)
		return err
	})
	return held
}
