package harness

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// SharedServers is the variable of the environment that names the directory in
// which integration/servers reports where the servers are that tests share.
const SharedServers = "XDS_BRIDGE_SHARED_SERVERS"

// sharedDelay is the push delay of servers that tests share.
const sharedDelay = 20 * time.Millisecond

// SharedNacos returns a namespace of the server that tests of all packages
// share, or a server of its own where there is none. It is not to be killed or
// frozen: a NacosProxy before it may be.
func SharedNacos(t testing.TB, version int) *Nacos {
	t.Helper()
	dir := os.Getenv(SharedServers)
	if dir == "" {
		return StartNacos(t, NacosOptions{Version: version, PushDelay: sharedDelay})
	}
	n := &Nacos{options: NacosOptions{Version: version}}
	Eventually(t, startNacosTime, "the Nacos that tests share", func() error {
		text, err := os.ReadFile(filepath.Join(dir, sharedFile(version))) //nolint:gosec // our own variable
		if err != nil {
			return err
		}
		var ok bool
		if n.URL, n.GRPC, ok = strings.Cut(string(text), "\n"); !ok {
			return errors.New("its addresses are not there yet")
		}
		return nil
	})
	n.Namespace = n.NewNamespace(t)
	return n
}

// ShareNacos starts the server that tests share and shows them where it is.
func ShareNacos(t testing.TB, version int, dir string) {
	t.Helper()
	n := StartNacos(t, NacosOptions{Version: version, PushDelay: sharedDelay, Heap: "1g"})
	half := filepath.Join(dir, sharedFile(version)+".half")
	must(t, os.WriteFile(half, []byte(n.URL+"\n"+n.GRPC), 0o600))
	must(t, os.Rename(half, filepath.Join(dir, sharedFile(version))))
}

func sharedFile(version int) string { return "nacos" + strconv.Itoa(version) }
