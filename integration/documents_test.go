package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestQuickStart types what docs/quickstart.md says, into one shell next to
// scripts/try.sh, and sees what it promises.
func TestQuickStart(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	dir, program := filepath.Join(t.TempDir(), "try"), harness.Program(t)
	here := strings.NewReplacer("bin/xds-bridge", program, "bin/try", dir)
	promised := []struct{ begin, says string }{
		{"scripts/try.sh", ""},
		{"export XDS_BRIDGE_CONFIG=", ""},
		{"bin/xds-bridge status", ", in sync"},
		{"bin/xds-bridge why", "create tri://10.244.2.12:20000"},
		{"bin/try/zkcli ls /dubbo", "10.244.2.12"},
		{"sed -i s/10.244.2.12/10.244.2.13/", ""},
		{"bin/xds-bridge why", "create tri://10.244.2.13:20000"},
		{"cp bin/try/xds-bridge.yaml bin/try/next.yaml", ""},
		{"sed -i 's/formats: ", ""},
		{"bin/xds-bridge validate bin/try/next.yaml", "valid"},
		{"bin/xds-bridge plan -f bin/try/next.yaml", "/services/greeter"},
		{"cp bin/try/next.yaml bin/try/xds-bridge.yaml", ""},
		{"bin/xds-bridge reload", ""}, // it may have seen the change by itself
		{"bin/try/zkcli ls /services/greeter", "10.244.2.13:20000"},
		{"bin/xds-bridge preflight", "√ write"},
	}
	commands := documented(t, "quickstart.md")
	if len(commands) != len(promised) {
		t.Fatalf("%d commands, want %d: %q", len(commands), len(promised), commands)
	}
	stop := tryOut(t, program, dir)
	setting := ""
	for i, c := range commands {
		if !strings.HasPrefix(c, promised[i].begin) {
			t.Errorf("command %d is %s, want %s", i, c, promised[i].begin)
		}
		switch {
		case i == 0: // it runs
		case strings.HasPrefix(c, "export "):
			setting = here.Replace(c) + "\n"
		default:
			harness.Eventually(t, time.Minute, c, func() error { return says(t, setting+here.Replace(c), promised[i].says) })
		}
	}
	stop()
}

// says runs a command of a document in the directory of the repository, and returns
// an error if it does not say something. A plan that differs ends with 1.
func says(t *testing.T, command, want string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = harness.Root(t)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return err
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 && (code != 1 || !strings.Contains(command, " plan ")) || !strings.Contains(string(out), want) {
		return fmt.Errorf("it ends with %d and says %s, want %q", code, out, want)
	}
	return nil
}

// documented returns the commands of a document.
func documented(t *testing.T, name string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if c, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, c)
		}
	}
	if len(commands) == 0 {
		t.Fatalf("docs/%s has no commands", name)
	}
	return commands
}

// tryOut runs scripts/try.sh until stop, which interrupts it as Ctrl-C does and
// shows that nothing of it is left.
func tryOut(t *testing.T, program, dir string) (stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(harness.Root(t), "scripts", "try.sh"), dir)
	cmd.Env = append(os.Environ(), "XDS_BRIDGE_BINARY="+program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var said strings.Builder
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C ends") {
		fmt.Fprintln(&said, lines.Text())
	}
	if !strings.Contains(said.String(), "export XDS_BRIDGE_CONFIG="+dir) {
		t.Fatalf("it says %s", said.String())
	}
	return func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out) // ends with the last that could write to it
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("it ends with %d: %s", cmd.ProcessState.ExitCode(), rest)
		}
		if err := syscall.Kill(-cmd.Process.Pid, 0); err == nil {
			t.Error("something of it is left")
		}
	}
}
