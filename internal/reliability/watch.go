package reliability

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// progressEvery is how often a run that prints nothing says what it does.
const progressEvery = 30 * time.Second

// Watch passes the lines of go test -json on, without the output of the tests,
// and prints for people what go test without -json prints. While no package
// ends it says now and then which ones run, since when, and how many there are;
// packages is their number, 0 where it is not known.
func Watch(from io.Reader, record, people io.Writer, packages int) error {
	w := watcher{
		packages: packages, record: json.NewEncoder(record), people: people,
		said: make(map[place]string), running: make(map[place]time.Time), spoke: time.Now(),
	}
	all, broken := make(chan parsed), make(chan error, 1)
	go func() {
		defer close(all)
		broken <- scan(from, all)
	}()
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	for open := true; open; {
		select {
		case line, more := <-all:
			if open = more; more {
				w.line(line)
			}
		case now := <-progress.C:
			w.progress(now)
		}
	}
	for at, text := range w.said {
		w.print("--- did not end: " + at.folder + " " + at.test + "\n" + text)
	}
	if err := <-broken; err != nil {
		return fmt.Errorf("read the run: %w", err)
	}
	return w.err
}

// A parsed line is an event, or a text that is none.
type parsed struct {
	event
	text string
}

// scan reads every line.
func scan(from io.Reader, to chan<- parsed) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var p parsed
		if err := json.Unmarshal(lines.Bytes(), &p.event); err != nil {
			p.text = lines.Text()
		}
		to <- p
	}
	return lines.Err()
}

type watcher struct {
	packages int // 0: not known

	record  *json.Encoder
	people  io.Writer
	said    map[place]string    // by tests that have not ended
	running map[place]time.Time // packages, and the outermost tests in them, by when they began
	begun   int                 // packages
	ended   int                 // packages
	spoke   time.Time           // when anything was printed last
	err     error
}

func (w *watcher) line(p parsed) {
	if p.text != "" {
		w.print(p.text + "\n") // go's own word, such as one on go.mod
		return
	}
	w.take(p.event)
}

// progress prints what runs, the longest first, unless something else was
// printed just before.
func (w *watcher) progress(now time.Time) {
	if now.Sub(w.spoke) < progressEvery || len(w.running) == 0 {
		return
	}
	byAge := slices.SortedFunc(maps.Keys(w.running), func(a, b place) int {
		return cmp.Or(w.running[a].Compare(w.running[b]), strings.Compare(a.folder+a.test, b.folder+b.test))
	})
	var names []string
	for _, at := range byAge {
		if at.test == "" && w.hasTest(at.folder) {
			continue // its tests say it
		}
		names = append(names, fmt.Sprintf("%s (%s)", strings.TrimSpace(at.folder+" "+at.test), now.Sub(w.running[at]).Round(time.Second)))
	}
	const most = 4
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	w.print(fmt.Sprintf("... %d of %d packages done, %d under way: %s\n",
		w.ended, max(w.begun, w.packages), w.begun-w.ended, strings.Join(names, ", ")))
}

func (w *watcher) hasTest(folder string) bool {
	for at := range w.running {
		if at.folder == folder && at.test != "" {
			return true
		}
	}
	return false
}

// follow keeps what runs.
func (w *watcher) follow(e event, at place) {
	if strings.Contains(at.test, "/") {
		return
	}
	switch e.Action {
	case "start", "run", "cont":
		w.running[at] = cmp.Or(e.Time, time.Now())
	case "pause":
		delete(w.running, at)
	case "pass", "fail", "skip":
		delete(w.running, at)
	}
	if at.test == "" {
		switch e.Action {
		case "start":
			w.begun++
		case "pass", "fail", "skip":
			w.ended++
		}
	}
}

func (w *watcher) print(text string) {
	w.spoke = time.Now()
	_, err := io.WriteString(w.people, text)
	w.err = cmp.Or(w.err, err)
}

func (w *watcher) take(e event) {
	at := place{folder(e.Package), e.Test}
	w.follow(e, at)
	switch e.Action {
	case "build-output":
		w.print(e.Output)
	case "output":
		w.output(at, e.Output)
	case "fail":
		w.cut(at)
		w.print(w.said[at])
		w.keep(e)
	case "pass", "skip", "attr":
		w.keep(e)
	}
	if e.Action != "output" && e.Action != "attr" {
		delete(w.said, at)
	}
}

// cut prints what tests said that did not end when their package did: the last
// words of a process that panicked or was killed.
func (w *watcher) cut(at place) {
	if at.test != "" {
		return
	}
	inside := func(other place) bool { return other.folder == at.folder && other.test != "" }
	for _, other := range slices.SortedFunc(maps.Keys(w.said), func(a, b place) int { return strings.Compare(a.test, b.test) }) {
		if inside(other) {
			w.print("--- did not end: " + other.folder + " " + other.test + "\n" + w.said[other])
		}
	}
	maps.DeleteFunc(w.said, func(other place, _ string) bool { return inside(other) })
	maps.DeleteFunc(w.running, func(other place, _ time.Time) bool { return inside(other) })
}

// output prints what is said of a package, and keeps what a test says until it
// has ended.
func (w *watcher) output(at place, text string) {
	switch {
	case at.test != "" && !strings.HasPrefix(strings.TrimSpace(text), "=== "):
		w.said[at] += text
	case at.test != "" || text == "PASS\n" || strings.HasPrefix(text, "-test.shuffle") || strings.HasPrefix(text, "coverage: "):
	case strings.HasPrefix(text, "\t") && coverage.MatchString(text): // of a package without tests
	default:
		w.print(coverage.ReplaceAllString(text, ""))
	}
}

// coverage is what go test appends to the line of a package: how much of all
// packages together its tests reach, which says nothing of it.
var coverage = regexp.MustCompile(`\tcoverage: .* of statements[^\n]*`)

// keep records the result of a test.
func (w *watcher) keep(e event) {
	if e.Test == "" {
		return
	}
	if err := w.record.Encode(e); err != nil {
		w.err = cmp.Or(w.err, fmt.Errorf("record: %w", err))
	}
}
