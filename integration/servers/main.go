// Command servers runs a command, and next to it the servers that the tests
// which it starts may share: servers [-test.short] go test ./...
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

func main() {
	testing.Init() // -test.short, with which the harness waits for a slow machine
	flag.Parse()
	os.Exit(run(flag.Args()))
}

func run(command []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	owner := &owner{ctx: ctx, give: stop}
	defer owner.end()
	dir := owner.TempDir()
	var starting sync.WaitGroup
	defer starting.Wait()
	defer stop() // does not wait for servers that are not ready yet
	for _, version := range harness.NacosVersions() {
		starting.Go(func() { harness.ShareNacos(owner, version, dir) })
	}
	tests := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the Makefile names it
	tests.Stdin, tests.Stdout, tests.Stderr = os.Stdin, os.Stdout, os.Stderr
	tests.Env = append(os.Environ(), harness.SharedServers+"="+dir)
	tests.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all that it starts ends with it
	tests.Cancel = func() error { return syscall.Kill(-tests.Process.Pid, syscall.SIGINT) }
	tests.WaitDelay = time.Minute
	err := tests.Run()
	if ctx.Err() != nil && tests.Process != nil {
		_ = syscall.Kill(-tests.Process.Pid, syscall.SIGKILL) // what is left, if anything
	}
	if err != nil {
		owner.Logf("%s: %v", command[0], err)
		owner.mu.Lock()
		owner.failed = true // which keeps the logs of the servers
		owner.mu.Unlock()
		return 1
	}
	return 0
}

// owner is whom the servers end with, instead of a test.
type owner struct {
	testing.TB // what is not here the harness does not use

	ctx  context.Context //nolint:containedctx // the Context of a testing.TB
	give func()          // the whole run up

	mu     sync.Mutex
	after  []func()
	failed bool
}

func (*owner) Helper()                    {}
func (*owner) Name() string               { return "servers" }
func (o *owner) Context() context.Context { return o.ctx }

func (*owner) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "servers: "+format+"\n", args...)
}

func (o *owner) Fatal(args ...any) { o.Fatalf("%s", fmt.Sprint(args...)) }

// Fatalf ends the goroutine and the run: tests would wait in vain.
func (o *owner) Fatalf(format string, args ...any) {
	if o.ctx.Err() == nil { // after that nobody uses a server
		o.Logf(format, args...)
		o.mu.Lock()
		o.failed = true
		o.mu.Unlock()
		o.give()
	}
	runtime.Goexit()
}

func (o *owner) Failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

func (o *owner) Cleanup(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.after = append(o.after, f)
}

func (o *owner) TempDir() string {
	dir, err := os.MkdirTemp("", "xds-bridge-servers-")
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { _ = os.RemoveAll(dir) }) // as far as it goes
	return dir
}

// end does what tests do at their end, the last first.
func (o *owner) end() {
	for _, f := range slices.Backward(o.after) {
		f()
	}
}
