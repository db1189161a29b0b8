package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ensembleSize is the number of servers of an ensemble.
const ensembleSize = 3

// startTime is what a server has to start on a busy machine.
const startTime = time.Minute

// ZooKeeper is a real ZooKeeper server. Its data outlives a Kill.
type ZooKeeper struct {
	Address string

	owner   testing.TB // which the server ends with, whichever subtest starts it
	dir     string
	java    []string // options next to those that all servers have
	process *Process
}

// StartZooKeeper starts a server of its own and waits until it serves. Options
// of Java may be given, such as -Xmx2g for one that has to hold much.
func StartZooKeeper(t testing.TB, java ...string) *ZooKeeper {
	t.Helper()
	host, port, _ := net.SplitHostPort(Address(t))
	z := &ZooKeeper{owner: t, Address: net.JoinHostPort(host, port), dir: t.TempDir(), java: java}
	z.configure(t, "clientPortAddress="+host, "clientPort="+port)
	z.Start(t)
	z.AwaitServing(t)
	return z
}

// StartEnsemble starts three servers that make one ensemble and waits until
// each of them serves.
func StartEnsemble(t testing.TB) []*ZooKeeper {
	t.Helper()
	var nodes []*ZooKeeper
	lines := []string{"standaloneEnabled=false", "reconfigEnabled=false"}
	for id := 1; id <= ensembleSize; id++ {
		node := &ZooKeeper{owner: t, Address: Address(t), dir: t.TempDir()}
		nodes = append(nodes, node)
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d;%s", id, FreePort(t), FreePort(t), node.Address))
	}
	for i, node := range nodes {
		node.configure(t, lines...)
		must(t, os.WriteFile(filepath.Join(node.dir, "data", "myid"), []byte(strconv.Itoa(i+1)), 0o600))
		node.Start(t)
	}
	for _, node := range nodes {
		node.AwaitServing(t)
	}
	return nodes
}

// Addresses returns where the servers serve.
func Addresses(nodes ...*ZooKeeper) []string {
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.Address)
	}
	return addresses
}

// Start starts the server once more after a Kill, with the data it had.
func (z *ZooKeeper) Start(t testing.TB) {
	t.Helper()
	args := []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.jmxremote=false", "-Dzookeeper.jmx.log4j.disable=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
	}
	args = append(args, z.java...)
	args = append(args, "-cp", filepath.Join(installed(t, "zookeeper"), "*"),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(z.dir, "zoo.cfg"))
	z.process = Start(z.owner, Command{Name: "zookeeper", Path: "java", Args: args, Dir: z.dir})
}

// Kill ends the server at once; sessions live on in its data.
func (z *ZooKeeper) Kill() { z.process.Kill() }

// Wipe removes everything that a killed server had stored.
func (z *ZooKeeper) Wipe(t testing.TB) {
	t.Helper()
	must(t, os.RemoveAll(filepath.Join(z.dir, "data", "version-2")))
}

// Stored returns a copy of what a killed server had stored, for Restore.
func (z *ZooKeeper) Stored(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join(z.dir, "data", "version-2"))))
	return dir
}

// Restore gives a killed server what Stored returned.
func (z *ZooKeeper) Restore(t testing.TB, dir string) {
	t.Helper()
	z.Wipe(t)
	must(t, os.CopyFS(filepath.Join(z.dir, "data", "version-2"), os.DirFS(dir)))
}

// Process returns the running server.
func (z *ZooKeeper) Process() *Process { return z.process }

func (z *ZooKeeper) configure(t testing.TB, lines ...string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(z.dir, "data"), 0o700))
	lines = append(lines,
		"dataDir="+filepath.Join(z.dir, "data"),
		"tickTime=500", // sessions of 1 s to 60 s
		"initLimit=20",
		"syncLimit=10",
		"maxSessionTimeout=60000",
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
	)
	must(t, os.WriteFile(filepath.Join(z.dir, "zoo.cfg"), []byte(strings.Join(lines, "\n")), 0o600))
}

// AwaitServing waits until the server answers requests. It asks for srvr: ruok
// is answered before requests are.
func (z *ZooKeeper) AwaitServing(t testing.TB) {
	t.Helper()
	Eventually(t, startTime, "ZooKeeper serves at "+z.Address, func() error {
		if !z.process.Running() {
			t.Fatalf("ZooKeeper ended: %s", z.process.tail())
		}
		answer, err := z.ask(t.Context(), "srvr")
		if err == nil && !strings.Contains(answer, "Mode:") {
			err = fmt.Errorf("srvr: %q", answer)
		}
		return err
	})
}

// Leads reports whether the server is the leader of its ensemble.
func (z *ZooKeeper) Leads(t testing.TB) bool {
	t.Helper()
	answer, err := z.ask(t.Context(), "srvr")
	return err == nil && strings.Contains(answer, "Mode: leader")
}

// Watches returns how many watches clients have at the server.
func (z *ZooKeeper) Watches(t testing.TB) int {
	t.Helper()
	n, err := z.count(t.Context(), "zk_watch_count")
	must(t, err)
	return n
}

// Connections returns how many connections the server has, that of who asks
// included.
func (z *ZooKeeper) Connections(ctx context.Context) (int, error) {
	return z.count(ctx, "zk_num_alive_connections")
}

func (z *ZooKeeper) count(ctx context.Context, what string) (n int, err error) {
	answer, err := z.ask(ctx, "mntr")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(answer, what+"\t")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return n, nil
}

// ask sends one of ZooKeeper's four letter words.
func (z *ZooKeeper) ask(ctx context.Context, command string) (string, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", z.Address)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", command, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second)) // a missed deadline shows in the read
	_, writeErr := io.WriteString(conn, command)
	answer, readErr := io.ReadAll(conn)
	return string(answer), errors.Join(writeErr, readErr)
}
