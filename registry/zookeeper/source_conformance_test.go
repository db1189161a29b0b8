package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func TestSource_Conformance(t *testing.T) {
	for name, fixture := range map[string]func(*testing.T, *zkfake.Server) conformance.SourceFixture{
		"interfaces": interfacesFixture, "applications": applicationsFixture,
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Source(t, func(t *testing.T) conformance.SourceFixture {
				t.Helper()
				s := serve(t)
				f := fixture(t, s)
				connected(t, s, &f)
				return f
			})
		})
	}
}

// A source over the client of a process that writes too.
func TestSource_SharedClientConformance(t *testing.T) {
	conformance.Source(t, func(t *testing.T) conformance.SourceFixture {
		t.Helper()
		s := serve(t)
		f := interfacesFixture(t, s)
		connected(t, s, &f, func(conn zookeeper.Options, o *zookeeper.SourceOptions) {
			client, err := zookeeper.Dial(conn)
			must(t, err)
			t.Cleanup(client.Close)
			o.Client = func() (*zookeeper.Client, error) { return client, nil }
		})
		return f
	})
}

// connected completes a fixture with the functions of every format.
func connected(t *testing.T, s *zkfake.Server, f *conformance.SourceFixture, tune ...func(zookeeper.Options, *zookeeper.SourceOptions)) {
	t.Helper()
	var dials atomic.Int32
	var away atomic.Bool
	conn := zookeeper.Options{
		Servers: []string{"a:2181", "b:2181"}, SessionTimeout: 10 * time.Second, ReceiveLimit: receiveLimit,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			dials.Add(1)
			return s.Dial(ctx, network, address)
		},
	}
	opts := zookeeper.SourceOptions{Formats: threeFormats(t), Asker: askerFunc(neverAnswers)}
	for _, f := range tune {
		f(conn, &opts)
	}
	source, err := zookeeper.NewSource(conn, opts)
	must(t, err)
	f.Source, f.Recheck = source, source.Recheck
	f.Dials = func() int { return int(dials.Load()) }
	f.Requests = func() int { return requests(s) }
	f.Kept = func() int { armed, again := s.Watches(); return armed + again }
	f.Away = func() func() {
		away.Store(true)
		s.DropConnections()
		return func() { away.Store(false) }
	}
}

// receiveLimit has room for everything in the suite, except for entries that are meant to be too large.
const receiveLimit = 16 << 10

// neverAnswers is a provider that accepts a question and does not answer.
func neverAnswers(ctx context.Context, _ metadata.Ref) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	<-ctx.Done()
	return "", errors.New("no answer")
}

// oversize makes the list of a parent larger than an answer may be.
func oversize(t *testing.T, s *zkfake.Server, parent string) func() {
	t.Helper()
	var all []string
	for i := range 1 + receiveLimit/200 {
		all = append(all, fmt.Sprintf("%s/x%d%s", parent, i, strings.Repeat("x", 200)))
		must(t, s.Put(all[i], nil))
	}
	return func() {
		for _, p := range all {
			s.Delete(p)
		}
	}
}

// denyNode denies a node, which a watch reports by a change, and returns a function
// that permits it again.
func denyNode(t *testing.T, s *zkfake.Server, p string, noticed func()) func() {
	t.Helper()
	must(t, s.SetACL(p, deniedToUs))
	noticed()
	return func() { must(t, s.SetACL(p, zkfake.WorldACL(zkfake.PermAll))) }
}

func interfacesFixture(_ *testing.T, s *zkfake.Server) conformance.SourceFixture {
	iface := func(n int) string { return fmt.Sprint("api.S", n) }
	return conformance.SourceFixture{
		Name: func(n int) registry.Name { return registry.Name("dubbo-interface:/dubbo/providers:" + iface(n) + "::") },
		Set: func(t *testing.T, n int, hosts ...string) {
			t.Helper()
			var want []string
			for _, host := range hosts {
				want = append(want, host+":1")
			}
			register(t, s, iface(n), want...)
			deleteOthers(s, providers(iface(n)), len(want), func(name string) bool {
				return slices.ContainsFunc(want, func(a string) bool { return providers(iface(n))+"/"+name == provider(iface(n), a) })
			})
			if len(want) == 0 {
				s.Delete("/dubbo/" + iface(n))
			}
		},
		Faults: map[string]func(*testing.T, int) func(){
			"a denied parent": func(t *testing.T, n int) func() {
				t.Helper()
				return denyNode(t, s, providers(iface(n)), func() { register(t, s, iface(n), "10.9.9.9:1") })
			},
			"an oversized parent": func(t *testing.T, n int) func() {
				t.Helper()
				return oversize(t, s, providers(iface(n)))
			},
		},
		Spoil: func(t *testing.T, n int) int {
			t.Helper()
			for _, name := range []string{"not%20a%20url", "%7B%22id%22%3A1%7D", "dubbo%3A%2F%2F"} {
				must(t, s.Put(providers(iface(n))+"/"+name, nil))
			}
			return 3
		},
	}
}

func applicationsFixture(_ *testing.T, s *zkfake.Server) conformance.SourceFixture {
	app := func(n int) string { return fmt.Sprint("s", n) }
	parent := func(n int) string { return "/services/" + app(n) }
	return conformance.SourceFixture{
		Name: func(n int) registry.Name {
			return registry.Name("dubbo-application:" + parent(n) + "/providers:api." + app(n) + "::")
		},
		Set: func(t *testing.T, n int, hosts ...string) {
			t.Helper()
			for _, host := range hosts {
				registerApplication(t, s, app(n), host, "r1")
			}
			deleteOthers(s, parent(n), len(hosts), func(name string) bool { return name == "bad" || slices.Contains(hosts, name[:max(len(name)-2, 0)]) })
			if len(hosts) == 0 {
				s.Delete(parent(n))
			}
		},
		Faults: map[string]func(*testing.T, int) func(){
			"a denied parent": func(t *testing.T, n int) func() {
				t.Helper()
				return denyNode(t, s, parent(n), func() { registerApplication(t, s, app(n), "10.9.9.9", "r1") })
			},
			"an oversized parent": func(t *testing.T, n int) func() {
				t.Helper()
				return oversize(t, s, parent(n))
			},
			"an oversized node": func(t *testing.T, n int) func() {
				t.Helper()
				must(t, s.Put(parent(n)+"/10.9.9.5:1", make([]byte, receiveLimit)))
				return func() {}
			},
			"a slow provider": func(t *testing.T, n int) func() {
				t.Helper()
				must(t, s.Put(parent(n)+"/10.9.9.4:1", []byte(strings.ReplaceAll(localInstance("10.9.9.4"), "shop", app(n)))))
				return func() {}
			},
			"a denied node": func(t *testing.T, n int) func() {
				t.Helper()
				registerApplication(t, s, app(n), "10.9.9.8", "r1")
				return denyNode(t, s, parent(n)+"/10.9.9.8:1", func() { registerApplication(t, s, app(n), "10.9.9.8", "r1") })
			},
			"a denied document": func(t *testing.T, n int) func() {
				t.Helper()
				must(t, s.Put("/dubbo/metadata/"+app(n)+"/secret", report(app(n), "secret")))
				return denyNode(t, s, "/dubbo/metadata/"+app(n)+"/secret", func() { registerInstance(t, s, app(n), "10.9.9.7", "secret") })
			},
			"a document that is not there": func(t *testing.T, n int) func() {
				t.Helper()
				registerInstance(t, s, app(n), "10.9.9.6", "late")
				return func() {}
			},
		},
		Spoil: func(t *testing.T, n int) int {
			t.Helper()
			must(t, s.Put(parent(n)+"/bad", []byte("{")))
			return 1
		},
	}
}

// deleteOthers deletes what is in a parent but for some, where there are any.
func deleteOthers(s *zkfake.Server, parent string, some int, keep func(name string) bool) {
	for _, name := range s.Children(parent) {
		if some > 0 && !keep(name) && name != "not%20a%20url" && name != "%7B%22id%22%3A1%7D" && name != "dubbo%3A%2F%2F" {
			s.Delete(parent + "/" + name)
		}
	}
}
