// Package nacossdk is a consumer and a provider that are written with
// nacos-sdk-go, as applications are, for tests of what they see.
package nacossdk

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients/nacos_client"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/common/http_agent"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// Group is the group of all services here.
const Group = constant.DEFAULT_GROUP

// Client is a client of the SDK.
type Client struct{ naming naming_client.INamingClient }

// Connect returns a client that ends with the test. It writes nothing outside
// a directory of the test, and notifies its subscribers of empty lists too.
func Connect(t testing.TB, server string) *Client {
	t.Helper()
	return connect(t, server, "")
}

// ConnectTo is Connect in the namespace that a test has of a server.
func ConnectTo(t testing.TB, server *harness.Nacos) *Client {
	t.Helper()
	return connect(t, server.URL, server.Namespace)
}

func connect(t testing.TB, server, namespace string) *Client {
	t.Helper()
	u, err := url.Parse(server)
	must(t, err)
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	must(t, err)
	dir, err := os.MkdirTemp("", "nacossdk-") //nolint:usetesting // the SDK writes to it even after it was closed
	must(t, err)
	config := *constant.NewClientConfig(
		constant.WithLogDir(dir), constant.WithCacheDir(dir), constant.WithLogLevel("error"),
		constant.WithNotLoadCacheAtStart(true), constant.WithUpdateCacheWhenEmpty(true), constant.WithTimeoutMs(10_000), constant.WithNamespaceId(namespace),
	)
	var nc nacos_client.NacosClient
	must(t, nc.SetClientConfig(config))
	must(t, nc.SetServerConfig([]constant.ServerConfig{*constant.NewServerConfig(u.Hostname(), port)}))
	must(t, nc.SetHttpAgent(&http_agent.HttpAgent{}))
	naming, err := naming_client.NewNamingClient(&nc)
	must(t, err)
	t.Cleanup(func() {
		ctx, closed := context.WithTimeout(context.Background(), 10*time.Second)
		go func() { defer closed(); naming.CloseClient() }()
		<-ctx.Done()          // v2.3.2 blocks for ever where its connection changes while it closes
		_ = os.RemoveAll(dir) // as far as it goes
	})
	return &Client{naming}
}

// Register publishes instances as the whole of what this client provides of a
// service.
func (c *Client) Register(t testing.TB, service string, instances ...model.Instance) {
	t.Helper()
	c.RegisterIn(t, Group, service, instances...)
}

// RegisterIn is Register for a service of another group.
func (c *Client) RegisterIn(t testing.TB, group, service string, instances ...model.Instance) {
	t.Helper()
	p := vo.BatchRegisterInstanceParam{ServiceName: service, GroupName: group}
	for _, in := range instances {
		p.Instances = append(p.Instances, vo.RegisterInstanceParam{
			Ip: in.Ip, Port: in.Port, Weight: in.Weight, Enable: in.Enable, Healthy: in.Healthy,
			Metadata: in.Metadata, ClusterName: in.ClusterName, Ephemeral: in.Ephemeral,
		})
	}
	harness.Eventually(t, time.Minute, "the SDK registers in "+service, func() error {
		if ok, err := c.naming.BatchRegisterInstance(p); err != nil || !ok {
			return fmt.Errorf("%t, %w", ok, err)
		}
		return nil
	})
}

// Loop publishes a batch for each of so many services, one after the other in
// each of several workers, as an application of the SDK would.
func (c *Client) Loop(services, workers int, batch func(i int) (string, []model.Instance)) error {
	next, errs := make(chan int), make(chan error, workers)
	for range workers {
		go func() {
			var first error
			for i := range next {
				service, instances := batch(i)
				p := vo.BatchRegisterInstanceParam{ServiceName: service, GroupName: Group}
				for _, in := range instances {
					p.Instances = append(p.Instances, vo.RegisterInstanceParam{
						Ip: in.Ip, Port: in.Port, Weight: in.Weight, Enable: true, Healthy: true, Metadata: in.Metadata, Ephemeral: true,
					})
				}
				if ok, err := c.naming.BatchRegisterInstance(p); err != nil || !ok {
					first = cmp.Or(first, fmt.Errorf("register %s: %t, %w", service, ok, err))
				}
			}
			errs <- first
		}()
	}
	for i := range services {
		next <- i
	}
	close(next)
	var err error
	for range workers {
		err = cmp.Or(err, <-errs)
	}
	return err
}

// Watch is a subscription to one service.
type Watch struct {
	service string

	mu     sync.Mutex
	seen   []harness.Seen // the addresses of those a consumer may call
	latest []model.Instance
}

// Subscribe watches a service for the rest of the test.
func (c *Client) Subscribe(t testing.TB, service string) *Watch {
	t.Helper()
	return c.SubscribeIn(t, Group, service)
}

// SubscribeIn is Subscribe for a service of another group.
func (c *Client) SubscribeIn(t testing.TB, group, service string) *Watch {
	t.Helper()
	w := &Watch{service: service}
	p := &vo.SubscribeParam{
		ServiceName: service, GroupName: group,
		SubscribeCallback: func(list []model.Instance, _ error) { w.notify(list) },
	}
	// A new client of the SDK fails its first calls while it connects.
	harness.Eventually(t, time.Minute, "the SDK subscribes to "+service, func() error { return c.naming.Subscribe(p) })
	return w
}

func (w *Watch) notify(list []model.Instance) {
	s := harness.Seen{At: time.Now(), Addresses: []string{}}
	for _, in := range list {
		if in.Enable && in.Healthy {
			s.Addresses = append(s.Addresses, fmt.Sprintf("%s:%d", in.Ip, in.Port))
		}
	}
	slices.Sort(s.Addresses)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.latest = append(w.seen, s), slices.Clone(list)
}

// Await waits until the SDK's last list is exactly these addresses.
func (w *Watch) Await(t testing.TB, within time.Duration, addresses ...string) {
	t.Helper()
	slices.Sort(addresses)
	harness.Eventually(t, within, "the SDK sees "+strings.Join(addresses, " ")+" of "+w.service, func() error {
		return harness.Same(w.Last(), addresses)
	})
}

// Last returns the addresses of the last list that the SDK reported.
func (w *Watch) Last() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		return []string{}
	}
	return w.seen[len(w.seen)-1].Addresses
}

// Instances returns the SDK's last list as it is.
func (w *Watch) Instances() []model.Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.latest)
}

// Lists returns everything that the SDK reported, oldest first.
func (w *Watch) Lists() []harness.Seen { return w.Since(time.Time{}) }

// Since returns the lists that the SDK reported after a moment.
func (w *Watch) Since(at time.Time) []harness.Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	var after []harness.Seen
	for _, s := range w.seen {
		if s.At.After(at) {
			after = append(after, s)
		}
	}
	return after
}

// Forget drops the lists that the SDK reported before a moment, but not the last.
func (w *Watch) Forget(before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := len(w.seen)
	for first > 0 && w.seen[first-1].At.After(before) {
		first--
	}
	w.seen = slices.Clone(w.seen[max(0, min(first, len(w.seen)-1)):])
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
