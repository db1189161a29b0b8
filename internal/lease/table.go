package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// format is the form of the record that this package reads and writes.
const format = 1

// A table is the record: who is there, and what each of them does.
//
//	{"format":1,
//	 "shards":[{"decider":"a","warm":"b","term":1793000000000}, ...],
//	 "members":{"a":{"beat":17,"ready":{"0":1793000000000},"config":"x7k2"}, "b":{"beat":3,"leaving":true}}}
type table struct {
	Format  int               `json:"format"`
	Shards  []shard           `json:"shards"`
	Members map[string]member `json:"members"`
}

type shard struct {
	Decider string `json:"decider,omitempty"`
	Warm    string `json:"warm,omitempty"`
	Term    int64  `json:"term"` // goes up whenever the decider changes, and is what writes are fenced by
}

// has reports whether a member has a part in the shard.
func (s shard) has(name string) bool { return s.Decider == name || s.Warm == name }

type member struct {
	Beat    int64         `json:"beat"` // counted up; one that stands still is dead
	Leaving bool          `json:"leaving,omitempty"`
	Unfit   bool          `json:"unfit,omitempty"`  // it has not got ready for what it has for long, as without a way to the target
	Config  string        `json:"config,omitempty"` // a word for what it is configured to write; empty: it does not say
	Ready   map[int]int64 `json:"ready,omitempty"`  // the term of each shard in which everything was brought to where its role asks for
}

// newTable returns a table of which nobody is a member. Its terms begin with
// the time in milliseconds, so that they are larger than those of a record that
// was deleted a moment ago: deciders do not change that often.
func newTable(shards int, now int64) table {
	t := table{Format: format, Shards: make([]shard, shards), Members: map[string]member{}}
	for i := range t.Shards {
		t.Shards[i].Term = now
	}
	return t
}

// lift makes terms later than some that were seen before: a record that was
// deleted may have been made anew by a clock that is behind, and targets keep
// out who comes with an earlier term.
func (t table) lift(seen []int64) {
	for i := range t.Shards {
		if t.Shards[i].Term < seen[i] {
			t.Shards[i].Term = seen[i] + 1
		}
	}
}

// resized returns a table of which nobody is a member, of another number of
// shards and with terms above those of this one.
func (t table) resized(shards int, now int64) table {
	for _, s := range t.Shards {
		now = max(now, s.Term+1)
	}
	return newTable(shards, now)
}

// errSpoiled says that a record is none that any version wrote.
var errSpoiled = errors.New("the record of the replicas cannot be read")

// maxAhead is how far a term may be ahead of a clock in milliseconds, a century:
// clocks that are wrong are so by decades, and terms go up by less than one for
// each millisecond that passes. One beyond it would leave none above itself.
const maxAhead = 100 * 366 * 24 * 60 * 60 * 1000

func parse(record []byte, now time.Time) (table, error) {
	var t table
	err := json.Unmarshal(record, &t)
	if t.Format != format && t.Format != 0 {
		return t, fmt.Errorf("the record of the replicas has format %d, this version knows %d", t.Format, format)
	}
	if err == nil && t.Format == 0 {
		err = errors.New("it has no format")
	}
	for i, s := range t.Shards {
		if err == nil && (s.Term < 0 || s.Term > now.UnixMilli()+maxAhead) {
			err = fmt.Errorf("shard %d has term %d, which is no time", i, s.Term)
		}
	}
	if err != nil {
		return t, fmt.Errorf("%w: %w", errSpoiled, err)
	}
	if t.Members == nil {
		t.Members = map[string]member{}
	}
	return t, nil
}

func (t table) encode() ([]byte, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("write the record of the replicas: %w", err)
	}
	return b, nil
}

func (t table) clone() table {
	t.Shards, t.Members = slices.Clone(t.Shards), maps.Clone(t.Members)
	for name, m := range t.Members {
		m.Ready = maps.Clone(m.Ready)
		t.Members[name] = m
	}
	return t
}

// ready reports whether a member has brought a shard to where its role in the
// present term asks for.
func (t table) ready(name string, i int) bool {
	term, told := t.Members[name].Ready[i]
	return told && term == t.Shards[i].Term
}

// covered reports whether everybody who has a part in a shard is ready, so
// that nobody else needs to hold on to it.
func (t table) covered(i int) bool {
	s := t.Shards[i]
	return s.Decider != "" && t.ready(s.Decider, i) && (s.Warm == "" || t.ready(s.Warm, i))
}

// fit returns the members that stay and get ready for what they have; where
// none does, all that stay.
func (t table) fit() []string {
	names := slices.DeleteFunc(t.staying(), func(name string) bool { return t.Members[name].Unfit })
	if len(names) == 0 {
		return t.staying()
	}
	return names
}

// staying returns the members that are not about to leave, in order.
func (t table) staying() []string {
	var names []string
	for name, m := range t.Members {
		if !m.Leaving {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
