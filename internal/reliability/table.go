package reliability

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// most is how many tests of one function a row names.
const most = 3

// standIn says what the tests of a folder run against where they do not say so.
func standIn(folder string) string {
	switch {
	case strings.HasPrefix(folder, "integration"):
		return "real servers"
	case strings.HasPrefix(folder, "registry/nacos"):
		return "a stand-in for Nacos"
	case strings.HasPrefix(folder, "registry/zookeeper"):
		return "a stand-in for ZooKeeper"
	case strings.HasPrefix(folder, "registry/mesh"):
		return "a stand-in for istiod"
	case strings.HasPrefix(folder, "bridge"):
		return "virtual time"
	}
	return ""
}

// Table returns the table of a run. Every fault needs a test that passed, and
// none of its tests may have failed.
func Table(r *Run) (string, error) {
	var b strings.Builder
	b.WriteString("| | what goes wrong | what users see | tried by | against | agreed again within |\n|---|---|---|---|---|---|\n")
	var faults []error
	for _, f := range Faults() {
		proofs := r.proofs(f.ID)
		if err := r.stood(f, proofs); err != nil {
			faults = append(faults, err)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", f.ID, f.What, f.Users, tried(proofs), r.against(proofs), r.healed(proofs))
	}
	return b.String(), errors.Join(faults...)
}

// stood reports what keeps a fault from having a row.
func (r *Run) stood(f Fault, proofs []proof) error {
	if len(proofs) == 0 {
		return fmt.Errorf("%s (%s): no test of this run has it in its name", f.ID, f.What)
	}
	for _, p := range proofs {
		if result := r.tests[p.place].result; result != "pass" {
			return fmt.Errorf("%s (%s): %s in %s: %q, want pass", f.ID, f.What, p.test, p.folder, result)
		}
	}
	return nil
}

// tried lists the tests: each function once, with what its subtests say.
func tried(proofs []proof) string {
	var cells []string
	for start := 0; start < len(proofs); {
		function, _, _ := strings.Cut(proofs[start].test, "/")
		end := start
		var said []string
		for ; end < len(proofs) && proofs[end].folder == proofs[start].folder && within(proofs[end].test, function); end++ {
			if name := proofs[end].name; name != function && !slices.Contains(said, name) {
				said = append(said, name)
			}
		}
		if len(said) > most {
			said = append(said[:most], fmt.Sprintf("and %d more", len(said)-most))
		}
		cell := fmt.Sprintf("`%s` in %s", function, proofs[start].folder)
		if len(said) > 0 {
			cell = strings.Join(said, "; ") + ": " + cell
		}
		cells = append(cells, strings.ReplaceAll(cell, "|", `\|`))
		start = end
	}
	return strings.Join(cells, "<br>")
}

func within(test, function string) bool {
	return test == function || strings.HasPrefix(test, function+"/")
}

func (r *Run) against(proofs []proof) string {
	var all []string
	for _, p := range proofs {
		with := r.attr(p.place, With)
		if with == "" {
			with = standIn(p.folder)
		}
		if with != "" && !slices.Contains(all, with) {
			all = append(all, with)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// healed is the longest time that a test of a fault took to agree again.
func (r *Run) healed(proofs []proof) string {
	var longest time.Duration
	for _, p := range proofs {
		if d, err := time.ParseDuration(r.attr(p.place, Healed)); err == nil {
			longest = max(longest, d)
		}
	}
	if longest == 0 {
		return ""
	}
	return bucket(longest)
}

// bucket makes a time coarse, so that a table of one run is that of the next.
func bucket(d time.Duration) string {
	for _, b := range []struct {
		atMost time.Duration
		text   string
	}{{time.Second, "1 s"}, {5 * time.Second, "5 s"}, {15 * time.Second, "15 s"}, {time.Minute, "1 min"}} {
		if d <= b.atMost {
			return b.text
		}
	}
	return "5 min"
}

// The lines between which the table stands in the document.
const (
	begin = "<!-- the table of the last run: make reliability -->\n"
	end   = "<!-- the end of the table -->\n"
)

// Insert returns a document with another table.
func Insert(document, table string) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", errors.New("the document has no place for the table")
	}
	return before + begin + table + end + after, nil
}

// row is a line of the table: the fault and the tests that tried it.
var (
	row  = regexp.MustCompile(`(?m)^\| ([AF]\d\d) \|(.*)$`)
	test = regexp.MustCompile("`(\\w+)` in ([\\w/-]+)")
)

// A Proof is a test function that a row of a document names.
type Proof struct{ Fault, Function, Folder string }

// Proofs returns what the rows of a document name, and an error where a fault
// has no row, two, or one without a test.
func Proofs(document string) ([]Proof, error) {
	var all []Proof
	var faults []error
	rows := make(map[string]int)
	for _, m := range row.FindAllStringSubmatch(document, -1) {
		rows[m[1]]++
		found := test.FindAllStringSubmatch(m[2], -1)
		if len(found) == 0 {
			faults = append(faults, fmt.Errorf("%s names no test", m[1]))
		}
		for _, t := range found {
			all = append(all, Proof{Fault: m[1], Function: t[1], Folder: t[2]})
		}
	}
	for _, f := range Faults() {
		if rows[f.ID] != 1 {
			faults = append(faults, fmt.Errorf("%s has %d rows, want one", f.ID, rows[f.ID]))
		}
	}
	return all, errors.Join(faults...)
}

// Check reports where a document says more than a run showed: a fault without
// a test that passed, or a test that did not.
func Check(document string, r *Run) error {
	named, err := Proofs(document)
	faults := []error{err}
	for _, f := range Faults() {
		faults = append(faults, r.stood(f, r.proofs(f.ID)))
	}
	for _, p := range named {
		if o := r.tests[place{p.Folder, p.Function}]; o == nil || o.result != "pass" {
			faults = append(faults, fmt.Errorf("%s: `%s` in %s did not pass in this run", p.Fault, p.Function, p.Folder))
		}
	}
	return errors.Join(faults...)
}
