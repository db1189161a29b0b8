package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stopTime is what a program has to end after SIGTERM.
const stopTime = 20 * time.Second

// tailLines is how much of a program's log a failed test prints.
const tailLines = 40

// Command says which program to start and how.
type Command struct {
	Name   string // how the test calls it, for example in logs
	Path   string
	Args   []string
	Env    []string // in addition to the environment of the test
	Dir    string   // working directory; empty: one of its own
	Stdin  io.Reader
	Stdout io.Writer // in addition to the log
}

// Process is a program that a test started and that ends with the test at the
// latest.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// Start starts a program. What it prints goes to a log of its own.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	dir := c.Dir
	if dir == "" {
		dir = t.TempDir()
	}
	log, err := os.CreateTemp(t.TempDir(), c.Name+"-*.log")
	must(t, err)
	p := &Process{name: c.Name, log: log.Name(), done: make(chan struct{})}
	p.cmd = exec.Command(c.Path, c.Args...) //nolint:noctx // it runs as long as the test, and longer than t.Context.
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = dir, c.Stdin, io.Writer(log), log
	if c.Stdout != nil {
		p.cmd.Stdout = io.MultiWriter(log, c.Stdout)
	}
	p.cmd.WaitDelay = time.Second // for pipes that nobody reads any more
	// A test binary that is killed must not leave its programs behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // tests read ExitCode
		_ = log.Close()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("--- the last lines of %s:\n%s", p.keep(t), p.tail())
		}
	})
	return p
}

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Running reports whether the program has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill ends the program at once, as kill -9 does, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.done
}

// Stop asks the program to end, as SIGTERM does, and waits until it has; it
// returns the exit code.
func (p *Process) Stop(t testing.TB) int {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	return p.Wait(t, stopTime)
}

// Wait waits until the program has ended by itself and returns its exit code.
func (p *Process) Wait(t testing.TB, within time.Duration) int {
	t.Helper()
	timer := time.NewTimer(patience(within))
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		t.Errorf("%s has not ended after %s", p.name, within)
		p.Kill()
	}
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal, for example SIGSTOP.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && p.Running() {
		t.Errorf("signal %s: %v", p.name, err)
	}
}

// Pid returns the program's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// CPU returns what the program has used of the processors so far.
func (p *Process) CPU(t testing.TB) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	must(t, err)
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may hold anything
	fields := strings.Fields(rest)
	const user, system, tick = 11, 12, time.Second / 100
	var total time.Duration
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(fields[i])
		must(t, err)
		total += time.Duration(n) * tick
	}
	return total
}

// Log returns everything the program has printed.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// keep copies the log of a failed test to bin/logs and returns its new place.
func (p *Process) keep(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(Root(t), "bin", "logs", strings.ReplaceAll(t.Name(), "/", "."))
	place := filepath.Join(dir, filepath.Base(p.log))
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(place, []byte(p.Log()), 0o600)); err != nil {
		return err.Error()
	}
	return place
}

func (p *Process) tail() string {
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// Run runs a program to its end and returns its exit code and what it printed
// on its standard output and its standard error.
func Run(t testing.TB, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut strings.Builder
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second // for pipes that what it started holds open
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("run %s: %v", path, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}
