package registry

import (
	"maps"
	"slices"
)

// A TableWriter writes to a table what a source reads part by part: the parents of
// ZooKeeper, the services of Nacos. It keeps the order in which a reader of the table
// never takes a missing row for a removed service:
//
//  1. Report marks the scopes that are unknown, and what is skipped.
//  2. Apply adds, replaces and removes the rows. Replace does so after a full read.
//  3. Apply and Replace then mark the scopes as known that a later report omitted.
//  4. Last, they answer the names that were passed to Answer.
//
// Only the goroutine of the source uses it.
type TableWriter struct {
	table    *Table
	interest *Interest
	stateOf  func(name string) (unknown error, ok bool)

	rows    map[Name]reportedRow
	unknown map[string]error // the unknown scopes, as the table has them

	// Waiting for Apply or Replace.
	changed map[Name]struct{}
	known   map[string]struct{}
	names   map[string]struct{}
}

// Reported is what a source reported of one part of its registry.
type Reported struct {
	Services []*Service
	Skipped  map[string]string // reasons by input, see Table.Skip
	Unknown  map[string]error  // reasons by scope, see Table.Unknown
}

// reportedRow is a row, and the part that last reported it.
type reportedRow struct {
	service *Service
	part    *Reported
}

// NewTableWriter returns a writer to a table and an interest, which may be nil.
//
// StateOf returns why a name of the interest is unknown, or nil if the source reported
// all of it. It returns false while the source has not read the name.
func NewTableWriter(t *Table, i *Interest, stateOf func(name string) (unknown error, ok bool)) *TableWriter {
	return &TableWriter{
		table: t, interest: i, stateOf: stateOf,
		rows: make(map[Name]reportedRow), unknown: make(map[string]error),
	}
}

// Report replaces what was reported of a part, and stores the new report in it. The zero
// Reported removes all services of the part. A row that another part reported since then
// is not removed.
func (w *TableWriter) Report(part *Reported, now Reported) {
	w.markUnknown(part.Unknown, now.Unknown)
	w.markSkipped(part.Skipped, now.Skipped)
	if w.changed == nil {
		w.changed = make(map[Name]struct{})
	}
	before := part.Services
	*part = now
	kept := make(map[Name]bool, len(now.Services))
	for _, s := range now.Services {
		kept[s.Name] = true
		w.rows[s.Name] = reportedRow{s, part}
		w.changed[s.Name] = struct{}{}
	}
	for _, s := range before {
		if !kept[s.Name] && w.rows[s.Name].part == part {
			delete(w.rows, s.Name)
			w.changed[s.Name] = struct{}{}
		}
	}
}

func (w *TableWriter) markUnknown(before, now map[string]error) {
	for scope := range before {
		if now[scope] == nil {
			if w.known == nil {
				w.known = make(map[string]struct{})
			}
			w.known[scope] = struct{}{}
		}
	}
	for scope, err := range now {
		delete(w.known, scope)
		if !sameError(w.unknown[scope], err) {
			w.unknown[scope] = err
			w.table.Unknown(scope, err)
		}
	}
}

func (w *TableWriter) markSkipped(before, now map[string]string) {
	for key := range before {
		if now[key] == "" {
			w.table.Skip(key, "")
		}
	}
	for key, reason := range now {
		if before[key] != reason {
			w.table.Skip(key, reason)
		}
	}
}

// Answer requests an answer for each name to the readers of the interest, once the
// rows are in the table.
func (w *TableWriter) Answer(names ...string) {
	if w.interest == nil || len(names) == 0 {
		return
	}
	if w.names == nil {
		w.names = make(map[string]struct{})
	}
	for _, name := range names {
		w.names[name] = struct{}{}
	}
}

// Apply writes the reports since the last Apply or Replace in one step, see Table.Apply.
func (w *TableWriter) Apply() {
	var put []*Service
	var gone []Name
	for _, name := range slices.Sorted(maps.Keys(w.changed)) {
		if row, ok := w.rows[name]; ok {
			put = append(put, row.service)
		} else {
			gone = append(gone, name)
		}
	}
	if len(w.changed) > 0 {
		w.table.Apply(put, gone)
	}
	w.applied()
}

// Replace writes the reports of all parts after a full read, see Table.Replace.
func (w *TableWriter) Replace() {
	w.table.Replace(func(yield func(*Service) bool) {
		for _, name := range slices.Sorted(maps.Keys(w.rows)) {
			if !yield(w.rows[name].service) {
				return
			}
		}
	})
	w.applied()
}

// applied does what follows the rows: it marks scopes as known, and answers names.
func (w *TableWriter) applied() {
	for scope := range w.known {
		delete(w.unknown, scope)
		w.table.Unknown(scope, nil)
	}
	if len(w.names) > 0 {
		answers := make(map[string]error, len(w.names))
		for name := range w.names {
			if unknown, ok := w.stateOf(name); ok {
				answers[name] = unknown
			}
		}
		w.interest.Report(answers)
	}
	w.changed, w.known, w.names = nil, nil, nil
}
