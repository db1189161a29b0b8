package reliability

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// module is the prefix that tables leave out.
const module = "github.com/xds-bridge/xds-bridge/"

// The attributes by which a test says more than its name does.
const (
	With   = "with"   // what it ran against, such as "ZooKeeper, three servers"
	Healed = "healed" // how long it took until everything agreed again
)

// event is a line of go test -json.
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Elapsed float64 `json:",omitempty"` // in seconds
	Output  string
	Key     string
	Value   string
}

// A Run is what tests that name a fault did.
type Run struct{ tests map[place]*outcome }

// place is where a test stands.
type place struct{ folder, test string }

type outcome struct {
	result string // pass, fail, skip; empty: it did not end
	attrs  map[string]string
}

// NewRun returns a run without tests.
func NewRun() *Run { return &Run{tests: make(map[place]*outcome)} }

// Read takes the lines of one go test -json.
func (r *Run) Read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		r.take(e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the run: %w", err)
	}
	return nil
}

func (r *Run) take(e event) {
	if e.Test == "" {
		return
	}
	at := place{folder(e.Package), e.Test}
	o := r.tests[at]
	if o == nil {
		o = &outcome{attrs: make(map[string]string)}
		r.tests[at] = o
	}
	switch e.Action {
	case "pass", "fail", "skip":
		o.result = e.Action
	case "attr":
		o.attrs[e.Key] = e.Value
	}
}

func folder(pkg string) string { return strings.TrimPrefix(pkg, module) }

// A proof is a test that tries a fault.
type proof struct {
	place
	name string // the part of the test's name that tells of the fault, as words
}

// proofs returns the tests that try a fault, in order: of a test and its
// subtests the outermost that names it.
func (r *Run) proofs(fault string) []proof {
	var all []proof
	for at := range r.tests {
		if name, ok := names(at.test, fault); ok {
			all = append(all, proof{at, name})
		}
	}
	slices.SortFunc(all, func(a, b proof) int {
		return strings.Compare(a.folder+"\x00"+a.test, b.folder+"\x00"+b.test)
	})
	return all
}

// names reports whether the last part of a test's name, and no part before it,
// tells of a fault, and returns that part as words.
func names(test, fault string) (string, bool) {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		if !slices.Contains(ids(part), fault) {
			continue
		}
		if i > 0 {
			part = strings.ReplaceAll(part, "_", " ")
		}
		return part, i == len(parts)-1
	}
	return "", false
}

// attr returns an attribute that a test, or one around it, has set.
func (r *Run) attr(at place, key string) string {
	for test := at.test; ; {
		if o := r.tests[place{at.folder, test}]; o != nil && o.attrs[key] != "" {
			return o.attrs[key]
		}
		i := strings.LastIndexByte(test, '/')
		if i < 0 {
			return ""
		}
		test = test[:i]
	}
}
