package integration_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// nacosPassesTheSuite runs the suite of all targets against a real server,
// which each test reaches as options says.
func nacosPassesTheSuite(t *testing.T, options func() nacos.Options) {
	t.Helper()
	namespaces := 0 // each test has one of its own: servers keep empty services for a minute
	conformance.Target(t, func(t *testing.T) conformance.Fixture {
		t.Helper()
		namespaces++
		o := options()
		o.Namespace = "n" + strconv.Itoa(namespaces)
		return nacosFixture(t, o)
	})
}

// nacosPassesTheSuiteLoggedIn does so as a user whose token expires so soon that
// it is renewed within the longer tests.
func nacosPassesTheSuiteLoggedIn(t *testing.T, server *harness.Nacos) {
	t.Helper()
	var most atomic.Int64 // logins within one test, by two clients
	t.Run("suite", func(t *testing.T) {
		nacosPassesTheSuite(t, func() nacos.Options {
			o := nacosUser(server, harness.NacosUser, harness.NacosPassword)
			var logins atomic.Int64
			o.Observe = func(seen nacos.Observation) {
				if seen.Op == nacos.OpLogin && seen.Err == nil {
					most.Store(max(most.Load(), logins.Add(1)))
				}
			}
			return o
		})
	})
	if most.Load() < 3 {
		t.Errorf("no client logged in again within a test: %d logins at most", most.Load())
	}
}

// nacosUser is the address of a server with a user.
func nacosUser(server *harness.Nacos, name, password string) nacos.Options {
	return nacos.Options{
		Servers: []string{server.URL}, Username: name, Timeout: 10 * time.Second,
		Password: func() (string, error) { return password, nil },
	}
}

// nacosRefuses shows what real servers refuse.
func nacosRefuses(t *testing.T, server *harness.Nacos) {
	t.Helper()
	t.Run("an instance of the other kind is refused, and nothing else is hurt", func(t *testing.T) {
		g, neighbour := nacosGroup("kind"), nacosGroup("neighbour")
		persistent(t, server, g.Name)
		target, _ := nacosTarget(t, nacos.Options{Servers: []string{server.URL}})
		err := target.Write(t.Context(), nacosChange(g, nacosEntry(g, 1, "me")))
		if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "persistent") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line that says why", err)
		}
		if err := target.Write(t.Context(), nacosChange(neighbour, nacosEntry(neighbour, 1, "me"))); err != nil {
			t.Error(err)
		}
		if got := nacosKeys(t, target, g); !slices.Equal(got, []string{"10.8.8.8:20000"}) {
			t.Errorf("the service holds %v, want what was there", got)
		}
	})
	t.Run("metadata of exactly the limit is accepted, and one byte more is not sent", func(t *testing.T) {
		g := nacosGroup("limit")
		target, _ := nacosTarget(t, nacos.Options{Servers: []string{server.URL}})
		entry := func(more int) registry.Entry {
			in, err := metadata.ParseNacosInstance(nacosEntry(g, 1, "me").Value)
			if err != nil {
				t.Fatal(err)
			}
			in.Metadata["x"] = strings.Repeat("x", metadata.MaxNacosMetadata-metadata.SizeOf(in.Metadata)-1+more)
			return registry.Entry{Group: g, Key: in.Key(), Value: in.String()}
		}
		if err := target.Write(t.Context(), nacosChange(g, entry(0))); err != nil {
			t.Errorf("exactly the limit: %v", err)
		}
		if err := target.Write(t.Context(), nacosChange(g, entry(1), nacosEntry(g, 2, "me"))); !errors.Is(err, metadata.ErrNacosLimit) {
			t.Errorf("one byte more: %v", err)
		}
		if got := nacosKeys(t, target, g); !slices.Equal(got, []string{"10.0.0.2:20000"}) {
			t.Errorf("the neighbour alone is there: %v", got)
		}
	})
	t.Run("a server that is away among several is passed over", func(t *testing.T) {
		away := "http://127.0.0.1:" + strconv.Itoa(harness.FreePort(t))
		g := nacosGroup("several")
		target, _ := nacosTarget(t, nacos.Options{Servers: []string{away, server.URL, away}})
		if err := target.Write(t.Context(), nacosChange(g, nacosEntry(g, 1, "me"))); err != nil {
			t.Error(err)
		}
	})
}

// nacosFixture is a target in a namespace of its own, and another owner's
// connection next to it.
func nacosFixture(t *testing.T, o nacos.Options) conformance.Fixture {
	t.Helper()
	group := func(n int) registry.Group {
		g := nacosGroup("service" + strconv.Itoa(n))
		g.Namespace = o.Namespace
		return g
	}
	entry := func(owner string) func(n, i, v int) registry.Entry {
		return func(n, i, v int) registry.Entry {
			in := metadata.NacosInstance{
				IP: fmt.Sprintf("10.%d.%d.%d", n, i/250, 1+i%250), Port: 20000, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
				Metadata: map[string]string{"protocol": "tri", "variant": strconv.Itoa(v), metadata.MarkKey: metadata.NewMark(owner, "b").String()},
			}
			return registry.Entry{Group: group(n), Key: in.Key(), Value: in.String()}
		}
	}
	connect := func(owner string) *nacos.Target {
		client := nacosClient(t, o)
		target, err := nacos.NewTarget(client, nacos.TargetOptions{
			Owner: metadata.NewMark(owner, "b").Owner, Layouts: []nacos.Layout{nacosScope{o.Namespace}}, ReadBack: soon,
		})
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	other := connect("another")
	return conformance.Fixture{
		Target: connect("me"), Owner: metadata.NewMark("me", "b").Owner,
		Group: group, Entry: entry("me"), Foreign: entry("another"),
		Hostile: func(text string) registry.Entry {
			in := metadata.NacosInstance{
				IP: "10.0.0.1", Port: 20000, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
				Metadata: map[string]string{"text": text, "key " + text: "x", metadata.MarkKey: metadata.NewMark("me", "b").String()},
			}
			return registry.Entry{Group: group(0), Key: in.Key(), Value: in.String()}
		},
		Set: func(t *testing.T, e registry.Entry) {
			t.Helper()
			if err := other.Write(t.Context(), nacosChange(e.Group, e)); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, soon, "the server shows what another wrote", func() error {
				held, err := other.Read(t.Context(), e.Group)
				if err == nil && !slices.ContainsFunc(held, func(h registry.Stored) bool { return h.Entry == e }) {
					err = fmt.Errorf("it shows %v", held)
				}
				return err
			})
		},
	}
}

// nacosScope is nacosLayout in a namespace.
type nacosScope struct{ namespace string }

func (s nacosScope) Scopes() []registry.Group {
	return []registry.Group{{Namespace: s.namespace, Group: "DEFAULT_GROUP"}}
}

func (nacosScope) GroupOf(namespace, group, service string) (registry.Group, bool) {
	return nacosLayout{}.GroupOf(namespace, group, service)
}

// persistent registers an instance that outlives its client, which the HTTP
// API of both versions can.
func persistent(t *testing.T, server *harness.Nacos, service string) {
	t.Helper()
	form := url.Values{
		"serviceName": {service}, "groupName": {"DEFAULT_GROUP"}, "ip": {"10.8.8.8"}, "port": {"20000"}, "ephemeral": {"false"},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/nacos/v1/ns/instance", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	harness.Eventually(t, soon, "a persistent instance is registered", func() error {
		req.Body, _ = req.GetBody()
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", res.StatusCode)
		}
		return nil
	})
}
