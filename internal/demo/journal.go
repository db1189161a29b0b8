package demo

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// journal is the target of the bridge. It prints every change after it was written. It is safe for
// concurrent use.
type journal struct {
	registry.Target
	pathOf func(registry.Group) (string, error)

	mu   sync.Mutex
	out  io.Writer // nil: silent
	last time.Time // when the mesh last changed
}

// Write implements registry.Target.
func (j *journal) Write(ctx context.Context, change registry.Change) error {
	if err := j.Target.Write(ctx, change); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.out == nil {
		return nil
	}
	took := time.Since(j.last).Round(100 * time.Microsecond)
	path, err := j.pathOf(change.Group)
	if err != nil {
		path = change.Group.String()
	}
	line := func(sign string, e registry.Entry, detail string) {
		j.printf("  %s %s %s%s (%s)\n", sign, path, e.Key, detail, took)
	}
	for _, w := range change.Put {
		if w.Old == nil {
			line("+", w.New, parameters(w.New.Value))
		} else {
			line("~", w.New, difference(w.Old.Value, w.New.Value))
		}
	}
	for _, h := range change.Delete {
		line("-", h.Entry, "")
	}
	return nil
}

// open starts the reports.
func (j *journal) open(out io.Writer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.out = out
}

// happened reports the next step of the mesh. The times of later changes count from it.
func (j *journal) happened(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = time.Now()
	j.printf("mesh: %s\n", what)
}

// print writes a line.
func (j *journal) print(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.printf("%s\n", text)
}

// printf writes a line. It ignores errors, because a closed output does not end the demo. The caller
// holds mu.
func (j *journal) printf(format string, args ...any) {
	if j.out != nil {
		_, _ = fmt.Fprintf(j.out, format, args...)
	}
}

// shown returns the parameters of a provider that the demo prints: those that its mesh can change.
func shown() []string { return []string{"weight", "meshLocality"} }

func parameters(value string) string {
	var text strings.Builder
	query := queryOf(value)
	for _, name := range shown() {
		if v := query.Get(name); v != "" {
			fmt.Fprintf(&text, " %s=%s", name, v)
		}
	}
	return text.String()
}

// difference returns the parameters in which two values differ.
func difference(before, after string) string {
	old, now := queryOf(before), queryOf(after)
	var names []string
	for _, q := range []url.Values{old, now} {
		for name := range q {
			if old.Get(name) != now.Get(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, " %s %s→%s", name, old.Get(name), now.Get(name))
	}
	return text.String()
}

func queryOf(value string) url.Values {
	if u, err := url.Parse(value); err == nil && u.Scheme != "" {
		return u.Query()
	}
	in, err := metadata.ParseNacosInstance(value)
	if err != nil {
		return nil
	}
	all := make(url.Values, len(in.Metadata))
	for k, v := range in.Metadata {
		all.Set(k, v)
	}
	return all
}
