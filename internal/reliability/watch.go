package reliability

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Watch passes the lines of go test -json on, without the output of the tests,
// and prints for people what go test without -json prints.
func Watch(from io.Reader, record, people io.Writer) error {
	w := watcher{record: json.NewEncoder(record), people: people, said: make(map[place]string)}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			w.print(lines.Text() + "\n") // go's own word, such as one on go.mod
			continue
		}
		w.take(e)
	}
	for at, text := range w.said {
		w.print("--- did not end: " + at.folder + " " + at.test + "\n" + text)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the run: %w", err)
	}
	return w.err
}

type watcher struct {
	record *json.Encoder
	people io.Writer
	said   map[place]string // by tests that have not ended
	err    error
}

func (w *watcher) print(text string) {
	_, err := io.WriteString(w.people, text)
	w.err = cmp.Or(w.err, err)
}

func (w *watcher) take(e event) {
	at := place{folder(e.Package), e.Test}
	switch e.Action {
	case "build-output":
		w.print(e.Output)
	case "output":
		w.output(at, e.Output)
	case "fail":
		w.print(w.said[at])
		w.keep(e)
	case "pass", "skip", "attr":
		w.keep(e)
	}
	if e.Action != "output" && e.Action != "attr" {
		delete(w.said, at)
	}
}

// output prints what is said of a package, and keeps what a test says until it
// has ended.
func (w *watcher) output(at place, text string) {
	switch {
	case at.test != "" && !strings.HasPrefix(strings.TrimSpace(text), "=== "):
		w.said[at] += text
	case at.test == "" && text != "PASS\n" && !strings.HasPrefix(text, "-test.shuffle"):
		w.print(text)
	}
}

// keep records the result of a test.
func (w *watcher) keep(e event) {
	if e.Test == "" {
		return
	}
	if err := w.record.Encode(e); err != nil {
		w.err = cmp.Or(w.err, fmt.Errorf("record: %w", err))
	}
}
