package harness

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// StartDubboGo starts a provider of real dubbo-go on a free port, which
// registers nowhere and answers a call of DubboInterface with its port, and
// returns the port.
func StartDubboGo(t testing.TB) int {
	t.Helper()
	port := FreePort(t)
	address := "127.0.0.1:" + strconv.Itoa(port)
	Start(t, Command{Name: "dubbogo-" + strconv.Itoa(port), Path: installed(t, "dubbogo"), Args: []string{"provide", address}})
	Eventually(t, startTime, "dubbo-go listens on "+address, func() error { return listens(t, address) })
	return port
}

// DubboGoConsumer is a consumer of real dubbo-go that calls DubboInterface all
// the time.
type DubboGoConsumer struct {
	Tally

	seen []string // one after the other: what it might call
}

// Tally counts the results of the calls of a consumer.
type Tally struct {
	mu     sync.Mutex
	failed []string
	calls  map[int]int // answered so far, by port
}

// The methods by which a consumer of dubbo-go finds providers.
const (
	DubboGoInterface   = "interface"
	DubboGoApplication = "application"
)

// ReferDubboGo starts a consumer that knows a ZooKeeper.
func ReferDubboGo(t testing.TB, z *ZooKeeper, discovery string) *DubboGoConsumer {
	t.Helper()
	return referDubboGo(t, "tri", "zookeeper", z.Address, discovery, "")
}

// ReferDubboGoAtNacos starts a consumer that knows a Nacos.
func ReferDubboGoAtNacos(t testing.TB, n *Nacos, discovery string) *DubboGoConsumer {
	t.Helper()
	return referDubboGo(t, "tri", "nacos", strings.TrimPrefix(n.URL, "http://"), discovery, n.Namespace)
}

func referDubboGo(t testing.TB, at ...string) *DubboGoConsumer {
	t.Helper()
	return ReferDubboGoBy(t, installed(t, "dubbogo"), at...)
}

// ReferDubboGoBy starts a consumer of another build of the application, with its
// arguments from the protocol on.
func ReferDubboGoBy(t testing.TB, binary string, at ...string) *DubboGoConsumer {
	t.Helper()
	c := &DubboGoConsumer{Tally: Tally{calls: make(map[int]int)}}
	in, out := io.Pipe()
	Start(t, Command{Name: "dubbogo-" + at[1], Path: binary, Args: append([]string{"consume"}, at...), Stdout: out})
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.listen(in)
	}()
	t.Cleanup(func() {
		_ = out.Close()
		<-read
	})
	return c
}

func (c *DubboGoConsumer) listen(in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		event, rest, _ := strings.Cut(lines.Text(), " ")
		c.observe(event, rest)
	}
}

func (c *DubboGoConsumer) observe(event, rest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch event {
	case "seen":
		c.seen = append(c.seen, rest)
	case "failed":
		c.failed = append(c.failed, rest)
	case "calls":
		for f := range strings.FieldsSeq(rest) {
			var port, n int
			if _, err := fmt.Sscanf(f, "%d=%d", &port, &n); err == nil {
				c.calls[port] = n
			}
		}
	}
}

// Seen returns what it may choose from now: each provider's port and
// parameters, in order.
func (c *DubboGoConsumer) Seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) == 0 {
		return nil
	}
	return strings.Split(c.seen[len(c.seen)-1], ", ")
}

// Failed returns the errors of the calls that failed after the first answer.
func (c *Tally) Failed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.failed)
}

// Calls returns how many calls each port has answered so far.
func (c *Tally) Calls() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}
