package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/redact"
)

// A terminal is where a command prints: data to out, everything else to err.
type terminal struct {
	out, err io.Writer
	env      config.Lookup // the environment
	color    string        // --color
}

type color string

const (
	plain  color = ""
	red    color = "31"
	green  color = "32"
	yellow color = "33"
)

// paint colours a text if colours are on. A colour never adds information.
func (t *terminal) paint(how color, text string) string {
	if how == plain || !t.colored() {
		return text
	}
	return "\x1b[" + string(how) + "m" + text + "\x1b[0m"
}

func (t *terminal) colored() bool {
	switch t.color {
	case "always":
		return true
	case "never":
		return false
	}
	if value, _ := t.env("NO_COLOR"); value != "" {
		return false
	}
	if value, _ := t.env("TERM"); value == "dumb" {
		return false
	}
	f, ok := t.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// brief returns the first of several lines, and how many more there are.
func brief(text string) string {
	first, others, more := strings.Cut(text, "\n")
	if !more {
		return text
	}
	return fmt.Sprintf("%s, and %d more", first, strings.Count(others, "\n")+1)
}

type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)}
	t.row(head...)
	return t
}

func (t table) row(cells ...string) {
	for i, c := range cells {
		if cells[i] = redact.Line(c); c == "" {
			cells[i] = "-"
		}
	}
	put(t.w, strings.Join(cells, "\t"))
}

func (t table) end() { _ = t.w.Flush() }

// document prints a JSON document, with the secrets in its texts redacted.
func (t *terminal) document(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	if err == nil {
		_, err = t.out.Write(redact.JSON(b.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// result prints the result of a command: as a JSON document, or by the function text.
func (t *terminal) result(form output, document any, text func()) error {
	if form == outputJSON {
		return t.document(document)
	}
	text()
	return nil
}

// say prints a line of data. Control characters are escaped and secrets redacted.
func (t *terminal) say(format string, args ...any) {
	put(t.out, redact.Line(fmt.Sprintf(format, args...)))
}

// heading returns a function that prints a line if it differs from the one before.
func (t *terminal) heading() func(line string) {
	last := ""
	return func(line string) {
		if line != last {
			t.say("%s", line)
			last = line
		}
	}
}

// remark prints a line that is not data.
func (t *terminal) remark(format string, args ...any) {
	put(t.err, redact.Line(fmt.Sprintf(format, args...)))
}

// show prints a line of data in a colour.
func (t *terminal) show(how color, format string, args ...any) {
	put(t.out, t.paint(how, redact.Line(fmt.Sprintf(format, args...))))
}

// warn prints a line of data that an operator should look at.
func (t *terminal) warn(format string, args ...any) {
	t.show(yellow, "‼ "+format, args...)
}

// put writes a line. It ignores errors, such as a closed pipe.
func put(w io.Writer, line string) { _, _ = io.WriteString(w, line+"\n") }
