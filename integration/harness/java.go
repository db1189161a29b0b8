package harness

import (
	"bufio"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// answerTime is what a command of a Java application may last: the first call
// of a JVM loads half of a framework.
const answerTime = 5 * time.Minute

// java is a JVM with an application that executes lines on its standard input,
// see org.bridge.console.Console.
type java struct {
	process *Process
	stdin   io.Writer
	answers chan string
}

// startJava starts what scripts/install.sh made of a name, with options of the
// JVM. Output other than its answers goes to other.
func startJava(t testing.TB, name string, options []string, other func(event, rest string)) *java {
	t.Helper()
	home, dir := installed(t, name), t.TempDir()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	j := &java{stdin: stdin, answers: make(chan string, 1)}
	j.process = Start(t, Command{
		Name: name,
		Path: "java",
		Args: append(options,
			"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-Duser.home="+dir, // frameworks keep caches there
			"-cp", filepath.Join(home, "classes")+":"+filepath.Join(home, "jars", "*"),
			"org.bridge.demo.Main",
		),
		Dir: dir, Stdin: in, Stdout: out,
	})
	t.Cleanup(func() { _ = stdin.Close() }) // lets the process's reader of it end
	go j.listen(stdout, other)
	j.await(t, "its start")
	return j
}

// command sends a command and returns what is behind ok and the id.
func (j *java) command(t testing.TB, words ...string) (string, error) {
	t.Helper()
	line := strings.Join(words, " ")
	go func() { _, _ = io.WriteString(j.stdin, line+"\n") }() // a JVM that has ended never reads it, which await sees
	answer := j.await(t, line)
	kind, rest, _ := strings.Cut(answer, " ")
	_, rest, _ = strings.Cut(rest, " ")
	if kind != "ok" {
		return "", errors.New(line + ": " + answer)
	}
	return rest, nil
}

func (j *java) await(t testing.TB, what string) string {
	t.Helper()
	timer := time.NewTimer(patience(answerTime))
	defer timer.Stop()
	select {
	case answer := <-j.answers:
		return answer
	case <-j.process.Exited():
		t.Fatalf("%s: the JVM has ended", what)
	case <-timer.C:
		t.Fatalf("%s: no answer within %s", what, answerTime)
	}
	return ""
}

// listen sorts what the JVM prints, which stays in its log too.
func (j *java) listen(stdout io.Reader, other func(event, rest string)) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		switch event, rest, _ := strings.Cut(lines.Text(), " "); event {
		case "ready", "ok", "error":
			j.answers <- lines.Text()
		default:
			other(event, rest)
		}
	}
}
