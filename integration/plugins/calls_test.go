package plugins_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// build builds the examples, by framework.
func build(t *testing.T) map[string]string {
	t.Helper()
	binaries := make(map[string]string)
	dir := t.TempDir()
	for _, f := range frameworks() {
		binaries[f] = filepath.Join(dir, f)
		code, _, errOut := harness.Run(t, filepath.Join(harness.Root(t), "scripts", "module.sh"), "plugins/"+f, "go", "build", "-o", binaries[f], "./example")
		if code != 0 {
			t.Fatalf("build the example of %s: %s", f, errOut)
		}
	}
	return binaries
}

// window is of how many calls it is looked at who answered. A balancer may leave
// out a server for a second; two calls last longer than a fiftieth of that.
const window = 100

// failure is how the line of a call begins that failed.
const failure = "failed: "

// calls is what a client printed, a line for each call.
type calls struct {
	client  string
	process *harness.Process

	mu    sync.Mutex
	rest  []byte
	lines []string // from the first answer on
}

// Write implements io.Writer.
func (c *calls) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, text...)
	for {
		line, rest, ok := bytes.Cut(c.rest, []byte("\n"))
		if !ok {
			return len(text), nil
		}
		c.rest = rest
		answer := strings.HasPrefix(string(line), "hello from ")
		failed := strings.HasPrefix(string(line), failure)
		if answer || failed && len(c.lines) > 0 { // others are log lines
			c.lines = append(c.lines, string(line))
		}
	}
}

// lately returns the different answers of the last calls.
func (c *calls) lately() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := make(map[string]bool)
	for _, line := range c.lines[max(0, len(c.lines)-window):] {
		answers[line] = true
	}
	return answers
}

// divided waits until of four thousand calls in a row a port answers a share,
// within five points.
func (c *calls) divided(t *testing.T, port, percent int) {
	t.Helper()
	const calls, off = 4000, 5
	from := 0
	harness.Eventually(t, soon, fmt.Sprintf("%s: %d answers %d %% of its calls", c.client, port, percent), func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.lines) < from+calls {
			return fmt.Errorf("%d calls", len(c.lines)-from)
		}
		mine := 0
		for _, line := range c.lines[from:] {
			if line == "hello from "+address(port) {
				mine++
			}
		}
		sum := len(c.lines) - from
		from = len(c.lines)
		if mine*100 < sum*(percent-off) || mine*100 > sum*(percent+off) {
			return fmt.Errorf("%d of %d", mine, sum)
		}
		return nil
	})
}

// answers returns how often each line was printed since the first answer.
func (c *calls) answers() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make(map[string]int)
	for _, line := range c.lines {
		counts[line]++
	}
	return counts
}

// checkNoneFailed fails the test where a call failed since the first answer.
func (c *calls) checkNoneFailed(t *testing.T) {
	t.Helper()
	counts := c.answers()
	t.Logf("%s: %v", c.client, counts)
	for line, n := range counts {
		if strings.HasPrefix(line, failure) {
			t.Errorf("%s: %d calls %s", c.client, n, line)
		}
	}
}
