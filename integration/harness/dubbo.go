package harness

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// DubboInterface is what the Java application provides and calls.
const DubboInterface = "org.bridge.demo.GreetService"

// Dubbo is a JVM with real Java Dubbo in it, which can be any number of
// providers and consumers at the same time.
type Dubbo struct {
	*java

	http      int // the port at which it makes calls
	mu        sync.Mutex
	addresses [][]string
	colors    []string
}

// The versions of Java Dubbo.
const (
	Dubbo33 = "dubbo"
	Dubbo32 = "dubbo32"
	Dubbo27 = "dubbo27" // knows only interfaces, as 2.6 does
	Dubbo26 = "dubbo26"
)

// StartDubbo starts a JVM without providers and consumers.
func StartDubbo(t testing.TB) *Dubbo {
	t.Helper()
	return StartDubboOf(t, Dubbo33)
}

// StartDubboOf starts a JVM with one of the versions.
func StartDubboOf(t testing.TB, version string) *Dubbo {
	t.Helper()
	d := new(Dubbo)
	d.java = startJava(t, version, []string{
		"-Xmx384m", "-Dsun.net.httpserver.nodelay=true",
		"--add-opens=java.base/java.lang=ALL-UNNAMED", // Dubbo 2.6 defines classes by reflection
	}, d.observe)
	return d
}

// Provide starts a provider on a free port and returns the port. The settings
// are words such as version=1.0.0 and group=g.
func (d *Dubbo) Provide(t testing.TB, protocol string, settings ...string) int {
	t.Helper()
	port := FreePort(t)
	command := append([]string{"provide", "p" + strconv.Itoa(port), protocol, strconv.Itoa(port)}, settings...)
	if _, err := d.command(t, command...); err != nil {
		t.Fatal(err)
	}
	return port
}

// StopProvider stops the provider on the port.
func (d *Dubbo) StopProvider(t testing.TB, port int) {
	t.Helper()
	if _, err := d.command(t, "stop", "p"+strconv.Itoa(port)); err != nil {
		t.Fatal(err)
	}
}

// Consumer is a Java Dubbo consumer that knows nothing but a registry.
type Consumer struct {
	dubbo *Dubbo
	id    string
}

// Refer starts a consumer that knows a ZooKeeper, with settings such as
// version=1.0.0 and group=g.
func (d *Dubbo) Refer(t testing.TB, id, zookeeper string, settings ...string) Consumer {
	t.Helper()
	return d.ReferAt(t, id, "zookeeper://"+zookeeper, settings...)
}

// ReferAt starts a consumer that knows a registry by its URL.
func (d *Dubbo) ReferAt(t testing.TB, id, registry string, settings ...string) Consumer {
	t.Helper()
	if _, err := d.command(t, append([]string{"refer", id, registry}, settings...)...); err != nil {
		t.Fatal(err)
	}
	return Consumer{d, id}
}

// Stop ends the consumer.
func (c Consumer) Stop(t testing.TB) {
	t.Helper()
	_, err := c.dubbo.command(t, "stop", c.id)
	must(t, err)
}

// Call calls the service once and returns the port of the provider that
// answered.
func (c Consumer) Call(t testing.TB) (port int, err error) {
	t.Helper()
	answer, err := c.dubbo.command(t, "call", c.id, "bob")
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(answer, "hello bob from %d", &port); err != nil {
		return 0, fmt.Errorf("answer %q: %w", answer, err)
	}
	return port, nil
}

// CallEach calls until every one of the ports answered, and fails the test on
// an answer of another or on a failed call.
func (c Consumer) CallEach(t testing.TB, ports ...int) {
	t.Helper()
	must(t, c.callEach(t, ports))
}

// AwaitOnly waits until the consumer calls every one of the ports and no other.
func (c Consumer) AwaitOnly(t testing.TB, within time.Duration, ports ...int) {
	t.Helper()
	Eventually(t, within, "the consumer calls "+fmt.Sprint(ports), func() error { return c.callEach(t, ports) })
}

// callEach makes so many calls that one that picks providers at random misses
// none of them, in practice.
func (c Consumer) callEach(t testing.TB, ports []int) error {
	t.Helper()
	answered := make(map[int]int)
	for range 15 * len(ports) {
		port, err := c.Call(t)
		if err != nil {
			return err
		}
		answered[port]++
	}
	slices.Sort(ports)
	return Same(slices.Sorted(maps.Keys(answered)), ports)
}

// Load makes calls all the time, until the test ends. As those of dubbo-go, the ones
// that fail before the first answer do not count.
func (c Consumer) Load(t testing.TB) *Tally {
	t.Helper()
	if c.dubbo.http == 0 {
		c.dubbo.http = FreePort(t)
		_, err := c.dubbo.command(t, "serve", strconv.Itoa(c.dubbo.http))
		must(t, err)
	}
	var workers sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	const most = 4 // it serves no more at a time
	client := &http.Client{Timeout: httpTime, Transport: &http.Transport{MaxIdleConnsPerHost: most}}
	t.Cleanup(func() { cancel(); workers.Wait(); client.CloseIdleConnections() })
	l := &Tally{calls: make(map[int]int)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/call/%s/bob", c.dubbo.http, c.id), http.NoBody)
	must(t, err)
	for range most {
		workers.Go(func() {
			pace := time.NewTicker(4 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				status, body, err := answer(client, req.Clone(ctx))
				if ctx.Err() == nil {
					l.took(status, body, err)
				}
				<-pace.C
			}
		})
	}
	return l
}

// took counts one call.
func (c *Tally) took(status int, answer string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var port int
	if _, none := fmt.Sscanf(answer, "hello bob from %d", &port); err == nil && status == http.StatusOK && none == nil {
		c.calls[port]++
	} else if len(c.calls) > 0 {
		c.failed = append(c.failed, fmt.Sprint(status, answer, err))
	}
}

// Addresses returns the list that a registry handed last to a consumer of this
// JVM.
func (d *Dubbo) Addresses() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.addresses) == 0 {
		return nil
	}
	return d.addresses[len(d.addresses)-1]
}

// AddressesSince returns the lists that registries handed to consumers of this
// JVM after the first n.
func (d *Dubbo) AddressesSince(n int) [][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.addresses[n:])
}

// Colors returns the parameter color of those on the last list that have one.
func (d *Dubbo) Colors() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.colors
}

// observe keeps what is reported of lists; other lines stay in the log alone.
func (d *Dubbo) observe(event, rest string) {
	list := strings.FieldsFunc(rest, func(r rune) bool { return r == ',' })
	d.mu.Lock()
	defer d.mu.Unlock()
	switch event {
	case "addresses":
		d.addresses = append(d.addresses, list)
	case "colors":
		d.colors = list
	}
}
