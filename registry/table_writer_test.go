package registry_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A writerRig is a table, what a TableWriter writes to it, and two parts of a registry.
type writerRig struct {
	*registry.TableWriter
	table    *registry.Table
	interest *registry.Interest
	state    map[string]error // of names that the source has read
	a, b     registry.Reported
}

func newWriterRig() *writerRig {
	r := &writerRig{table: registry.NewTable(), interest: registry.NewInterest(), state: make(map[string]error)}
	r.TableWriter = registry.NewTableWriter(r.table, r.interest, func(name string) (error, bool) {
		err, ok := r.state[name]
		return err, ok
	})
	return r
}

// shown returns the rows of the table, each with its hosts, and then its unknown scopes
// and skipped inputs.
func (r *writerRig) shown() []string {
	rows, certainty := r.table.Snapshot()
	var services, others []string
	for name, s := range rows {
		words := []string{string(name)}
		for _, e := range s.Endpoints {
			words = append(words, e.Host)
		}
		services = append(services, strings.Join(words, " "))
	}
	for scope, err := range certainty.Unknown {
		others = append(others, "unknown "+scope+": "+err.Error())
	}
	for key, reason := range r.table.Skipped() {
		others = append(others, "skipped "+key+": "+reason)
	}
	slices.Sort(services)
	slices.Sort(others)
	return slices.Concat(services, others)
}

func reported(s ...*registry.Service) registry.Reported { return registry.Reported{Services: s} }

func (r *writerRig) apply(part *registry.Reported, now registry.Reported) {
	r.Report(part, now)
	r.Apply()
}

func TestTableWriter(t *testing.T) {
	t.Parallel()
	denied, timeout := errors.New("denied"), errors.New("timeout")
	unknown := func(err error, s ...*registry.Service) registry.Reported {
		return registry.Reported{Services: s, Unknown: map[string]error{"a*": err}}
	}
	tests := map[string]struct {
		act  func(*writerRig)
		want []string
	}{
		"rows wait for Apply": {
			act: func(r *writerRig) { r.Report(&r.a, reported(service("a", "1"))) },
		},
		"Apply writes the rows of several reports": {
			act: func(r *writerRig) {
				r.Report(&r.a, reported(service("a", "1")))
				r.apply(&r.b, reported(service("b", "2"), service("c", "3")))
			},
			want: []string{"a 1", "b 2", "c 3"},
		},
		"of two reports of a part the later one counts": {
			act: func(r *writerRig) {
				r.Report(&r.a, reported(service("a", "1"), service("b", "1")))
				r.apply(&r.a, reported(service("a", "2")))
			},
			want: []string{"a 2"},
		},
		"a row that a part no longer reports is removed": {
			act: func(r *writerRig) {
				r.apply(&r.a, reported(service("a", "1"), service("b", "1")))
				r.apply(&r.a, reported(service("b", "1")))
			},
			want: []string{"b 1"},
		},
		"the zero report removes all rows of a part": {
			act: func(r *writerRig) {
				r.apply(&r.a, reported(service("a", "1")))
				r.apply(&r.b, reported(service("b", "1")))
				r.apply(&r.a, registry.Reported{})
			},
			want: []string{"b 1"},
		},
		"a row that another part took over stays": {
			act: func(r *writerRig) {
				r.apply(&r.a, reported(service("x", "1")))
				r.apply(&r.b, reported(service("x", "2")))
				r.apply(&r.a, registry.Reported{})
			},
			want: []string{"x 2"},
		},
		"a row that one part removes and another reports before Apply stays": {
			act: func(r *writerRig) {
				r.apply(&r.a, reported(service("x", "1")))
				r.Report(&r.a, registry.Reported{})
				r.apply(&r.b, reported(service("x", "2")))
			},
			want: []string{"x 2"},
		},
		"a scope is unknown before the rows": {
			act:  func(r *writerRig) { r.Report(&r.a, unknown(denied, service("a", "1"))) },
			want: []string{"unknown a*: denied"},
		},
		"a scope is known only after the rows": {
			act: func(r *writerRig) {
				r.apply(&r.a, unknown(denied))
				r.Report(&r.a, reported(service("a", "1")))
			},
			want: []string{"unknown a*: denied"},
		},
		"a scope is known after Apply": {
			act: func(r *writerRig) {
				r.apply(&r.a, unknown(denied))
				r.apply(&r.a, reported(service("a", "1")))
			},
			want: []string{"a 1"},
		},
		"a scope is known after Replace": {
			act: func(r *writerRig) {
				r.apply(&r.a, unknown(denied))
				r.Report(&r.a, reported(service("a", "1")))
				r.Replace()
			},
			want: []string{"a 1"},
		},
		"a scope that was known for a moment between two calls of Apply stays unknown": {
			act: func(r *writerRig) {
				r.apply(&r.a, unknown(denied))
				r.Report(&r.a, registry.Reported{})
				r.apply(&r.a, unknown(denied))
			},
			want: []string{"unknown a*: denied"},
		},
		"a scope that is unknown again is marked again": {
			act: func(r *writerRig) {
				r.apply(&r.a, unknown(denied))
				r.apply(&r.a, registry.Reported{})
				r.Report(&r.a, unknown(denied))
			},
			want: []string{"unknown a*: denied"},
		},
		"another reason replaces that of an unknown scope": {
			act: func(r *writerRig) {
				r.apply(&r.a, unknown(denied))
				r.Report(&r.a, unknown(timeout))
			},
			want: []string{"unknown a*: timeout"},
		},
		"inputs are skipped until a report has them no longer": {
			act: func(r *writerRig) {
				r.Report(&r.a, registry.Reported{Skipped: map[string]string{"x": "no port", "y": "no port", "z": "no port"}})
				r.Report(&r.a, registry.Reported{Skipped: map[string]string{"y": "no host", "z": "no port"}})
			},
			want: []string{"skipped y: no host", "skipped z: no port"},
		},
		"Replace removes the rows that no part reports": {
			act: func(r *writerRig) {
				r.table.Put(service("of an earlier source"))
				r.Report(&r.a, reported(service("a", "1")))
				r.Report(&r.b, reported(service("b", "1")))
				r.Report(&r.b, registry.Reported{})
				r.Replace()
			},
			want: []string{"a 1"},
		},
		"Replace keeps the rows of earlier reports": {
			act: func(r *writerRig) {
				r.apply(&r.a, reported(service("a", "1")))
				r.Report(&r.b, reported(service("b", "1")))
				r.Replace()
			},
			want: []string{"a 1", "b 1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newWriterRig()
			tt.act(r)
			if got := r.shown(); !slices.Equal(got, tt.want) {
				t.Errorf("the table shows %q, want %q", got, tt.want)
			}
		})
	}
}

// TestTableWriter_MassRemoval shows that a reader drains the removals of all parts at once.
func TestTableWriter_MassRemoval(t *testing.T) {
	t.Parallel()
	r := newWriterRig()
	r.Report(&r.a, reported(service("a", "1")))
	r.Report(&r.b, reported(service("b", "1")))
	r.Replace()
	reader := r.table.Reader()
	reader.Drain()
	r.Report(&r.a, registry.Reported{})
	r.Report(&r.b, registry.Reported{})
	if got := changed(reader.Drain()); len(got) > 0 {
		t.Errorf("%q changed before Apply, want nothing", got)
	}
	r.Apply()
	if got, want := changed(reader.Drain()), []string{"-a", "-b"}; !slices.Equal(got, want) {
		t.Errorf("%q changed, want %q", got, want)
	}
}

// TestTableWriter_Idle shows that Apply wakes no reader if nothing was reported.
func TestTableWriter_Idle(t *testing.T) {
	t.Parallel()
	r := newWriterRig()
	r.apply(&r.a, reported(service("a", "1")))
	reader := r.table.Reader()
	<-reader.Wake()
	r.Apply()
	r.apply(&r.a, reported(service("a", "1")))
	select {
	case <-reader.Wake():
		t.Error("the reader was woken, want it asleep")
	default:
	}
}

// TestTableWriter_Order looks at the table between two steps of Apply: the table calls
// back as soon as a service that did not fit may fit.
func TestTableWriter_Order(t *testing.T) {
	t.Parallel()
	r := newWriterRig()
	r.interest.Add("a")
	r.interest.Names()
	var steps []string
	r.TableWriter = registry.NewTableWriter(r.table, r.interest, func(string) (error, bool) {
		steps = append(steps, "answer: "+r.shown()[0])
		return nil, true
	})
	r.table.Limit(registry.Limits{Endpoints: 10}, nil)
	unknown := map[string]error{"a": errors.New("denied")}
	r.apply(&r.a, registry.Reported{Services: []*registry.Service{service("a", "1", "2", "3", "4", "5")}, Unknown: unknown})
	large := service("b", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11")
	r.apply(&r.b, reported(large))
	r.table.Limit(registry.Limits{Endpoints: 10}, func() { steps = append(steps, r.shown()...) })
	steps = nil
	r.Report(&r.a, reported(service("a", "1")))
	r.Answer("a")
	r.Apply()
	if want := []string{"a 1", "unknown a: denied", "answer: a 1"}; !slices.Equal(steps, want) {
		t.Errorf("the steps of Apply show %q, want %q", steps, want)
	}
	if got, want := r.shown(), []string{"a 1"}; !slices.Equal(got, want) {
		t.Errorf("the table shows %q after Apply, want %q", got, want)
	}
}

func TestTableWriter_Answer(t *testing.T) {
	t.Parallel()
	denied := errors.New("denied")
	tests := map[string]struct {
		state    map[string]error
		act      func(*writerRig)
		reported bool
		err      bool
	}{
		"a name is answered by Apply":             {map[string]error{"a": nil}, func(r *writerRig) { r.Answer("a"); r.Apply() }, true, false},
		"a name is answered by Replace":           {map[string]error{"a": nil}, func(r *writerRig) { r.Answer("a"); r.Replace() }, true, false},
		"a name is not answered before the rows":  {map[string]error{"a": nil}, func(r *writerRig) { r.Answer("a") }, false, false},
		"a name that is unknown has an error":     {map[string]error{"a": denied}, func(r *writerRig) { r.Answer("a"); r.Apply() }, false, true},
		"a name that is not read has no answer":   {nil, func(r *writerRig) { r.Answer("a"); r.Apply() }, false, false},
		"a name that Answer was not called with":  {map[string]error{"a": nil}, func(r *writerRig) { r.Answer("b"); r.Apply() }, false, false},
		"a name is answered once":                 {map[string]error{"a": denied}, answerTwice, false, true},
		"Answer without a name answers no reader": {map[string]error{"a": nil}, func(r *writerRig) { r.Answer(); r.Apply() }, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newWriterRig()
			r.interest.Add("a", "b")
			r.interest.Names()
			maps.Copy(r.state, tt.state)
			tt.act(r)
			if a := r.interest.Answer("a"); a.Reported != tt.reported || (a.Err != nil) != tt.err {
				t.Errorf("the answer is %v with the error %v, want %v and an error: %v", a.Reported, a.Err, tt.reported, tt.err)
			}
		})
	}
	t.Run("without an interest", func(t *testing.T) {
		t.Parallel()
		w := registry.NewTableWriter(registry.NewTable(), nil, func(string) (error, bool) { panic("nobody asked") })
		w.Answer("a")
		w.Apply()
	})
}

// answerTwice calls Apply again after the state of a name has changed.
func answerTwice(r *writerRig) {
	r.Answer("a")
	r.Apply()
	r.state["a"] = nil
	r.Apply()
}
