package reliability_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/reliability"
)

const module = "github.com/xds-bridge/xds-bridge/"

// all is a run in which every fault has a test that passed.
func all() string {
	var b strings.Builder
	for _, f := range reliability.Faults() {
		fmt.Fprintf(&b, `{"Action":"pass","Package":"%sbridge","Test":"TestAll/%s_is_stood"}`+"\n", module, f.ID)
	}
	return b.String() + `{"Action":"pass","Package":"` + module + `bridge","Test":"TestAll"}` + "\n"
}

func runOf(t *testing.T, events ...string) *reliability.Run {
	t.Helper()
	r := reliability.NewRun()
	if err := r.Read(strings.NewReader(strings.Join(events, ""))); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTable(t *testing.T) {
	const pkg = `"Package":"` + module + `integration/faults"`
	table, err := reliability.Table(runOf(t, all(),
		`{"Action":"attr",`+pkg+`,"Test":"TestServers","Key":"with","Value":"three servers"}`+"\n",
		`{"Action":"attr",`+pkg+`,"Test":"TestServers/F35_the_leader_dies:_a|b","Key":"healed","Value":"3.2s"}`+"\n",
		`{"Action":"pass",`+pkg+`,"Test":"TestServers/F35_the_leader_dies:_a|b"}`+"\n",
		`{"Action":"pass",`+pkg+`,"Test":"TestServers/F35_the_leader_dies:_a|b/F35_a_part_of_it"}`+"\n",
	))
	if err != nil {
		t.Fatal(err)
	}
	const want = "F35 is stood: `TestAll` in bridge<br>F35 the leader dies: a\\|b: `TestServers` in integration/faults | three servers; virtual time | 5 s |\n"
	if !strings.Contains(table, want) {
		t.Errorf("no row with %s in\n%s", want, table)
	}
	document, err := reliability.Insert("# Page\n<!-- the table of the last run: make reliability -->\nan earlier table\n<!-- the end of the table -->\nrest\n", table)
	if err != nil || !strings.HasSuffix(document, table+"<!-- the end of the table -->\nrest\n") || strings.Contains(document, "earlier") {
		t.Errorf("%v\n%s", err, document)
	}
	if proofs, err := reliability.Proofs(document); err != nil || len(proofs) != len(reliability.Faults())+1 {
		t.Errorf("%d proofs, %v", len(proofs), err)
	}
}

func TestAFaultThatWasNotStoodHasNoRow(t *testing.T) {
	for name, tt := range map[string]struct{ events, want string }{
		"without a test":        {strings.ReplaceAll(all(), "F35", "F41"), "F35"},
		"of which one failed":   {all() + `{"Action":"fail","Package":"x","Test":"TestX_F35"}`, "TestX_F35"},
		"of which one was left": {all() + `{"Action":"skip","Package":"x","Test":"TestX_F35"}`, "TestX_F35"},
		"that never ended":      {all() + `{"Action":"run","Package":"x","Test":"TestX_F35"}`, "TestX_F35"},
	} {
		t.Run(name, func(t *testing.T) {
			r := runOf(t, tt.events)
			if _, err := reliability.Table(r); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("table: %v", err)
			}
			good, err := reliability.Table(runOf(t, all()))
			if err != nil {
				t.Fatal(err)
			}
			if err := reliability.Check(good, r); err == nil || !strings.Contains(err.Error(), "F35") {
				t.Errorf("check: %v", err)
			}
		})
	}
}

func TestADocumentSaysNoMoreThanTheRun(t *testing.T) {
	r := runOf(t, all())
	table, err := reliability.Table(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := reliability.Check(table, r); err != nil {
		t.Error(err)
	}
	for name, document := range map[string]string{
		"a row is missing":             strings.Replace(table, "| F07 ", "| X07 ", 1),
		"a row is there twice":         table + "| F07 | `TestAll` in bridge |\n",
		"a row names another function": strings.Replace(table, "`TestAll`", "`TestOther`", 1),
	} {
		if err := reliability.Check(document, r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWatch(t *testing.T) {
	var record, people strings.Builder
	err := reliability.Watch(strings.NewReader(strings.Join([]string{
		`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    a.go:1: secret of a test that passed\n"}`,
		`{"Action":"attr","Package":"p","Test":"TestA","Key":"with","Value":"a server"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"    b.go:1: why\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`,
		`go: a word of its own`,
		`{"Action":"output","Package":"p","Output":"coverage: 3.1% of statements in ./a, ./b\n"}`,
		`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\tcoverage: 3.1% of statements in ./a, ./b\n"}`,
		`{"Action":"output","Package":"q","Output":"\tq\t\tcoverage: 0.0% of statements\n"}`,
		`{"Action":"output","Package":"p","Test":"TestC","Output":"    c.go:1: went on\n"}`,
	}, "\n")), &record, &people, 0)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"why": true, "FAIL\tp": true, "a word of its own": true, "went on": true, "ok  \tp\t0.1s\n": true, "coverage": false, "secret": false, "=== RUN": false} {
		if strings.Contains(people.String(), text) != want {
			t.Errorf("%q is printed: %v, want %v:\n%s", text, !want, want, people.String())
		}
	}
	r := runOf(t, all(), record.String())
	if _, err := reliability.Table(r); err != nil {
		t.Errorf("what was recorded cannot be read: %v", err)
	}
	if n := strings.Count(record.String(), "\n"); n != 3 {
		t.Errorf("%d lines recorded:\n%s", n, record.String())
	}
}

// A run in which no package ends for long says what it does.
func TestWatchSaysWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, in := io.Pipe()
		var people strings.Builder
		done := make(chan error)
		go func() { done <- reliability.Watch(out, io.Discard, &people, 7) }()
		say := func(format string, args ...any) {
			if _, err := fmt.Fprintf(in, format+"\n", args...); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now().Format(time.RFC3339Nano)
		say(`{"Time":%q,"Action":"start","Package":"a"}`, began)
		say(`{"Time":%q,"Action":"start","Package":"b"}`, began)
		say(`{"Time":%q,"Action":"start","Package":"c"}`, began)
		say(`{"Action":"pass","Package":"c"}`)
		say(`{"Time":%q,"Action":"run","Package":"b","Test":"TestSlow"}`, began)
		say(`{"Time":%q,"Action":"run","Package":"b","Test":"TestSlow/part"}`, began)
		time.Sleep(time.Minute + time.Second)
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		const want = "... 1 of 7 packages done, 2 under way: a (30s), b TestSlow (30s)\n... 1 of 7 packages done, 2 under way: a (1m0s), b TestSlow (1m0s)\n"
		if people.String() != want {
			t.Errorf("got\n%swant\n%s", people.String(), want)
		}
	})
}

// What a process said last before it was killed is printed when its package ends, and its tests run no more.
func TestWatchSaysWhatDidNotEnd(t *testing.T) {
	const run = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestKilled"}
{"Action":"output","Package":"a","Test":"TestKilled","Output":"signal: killed\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t1s\n"}
{"Action":"fail","Package":"a"}
{"Action":"start","Package":"b"}
{"Action":"output","Package":"b","Output":"ok  \tb\t1s\n"}
{"Action":"pass","Package":"b"}
`
	var people strings.Builder
	if err := reliability.Watch(strings.NewReader(run), io.Discard, &people, 2); err != nil {
		t.Fatal(err)
	}
	const want = "FAIL\ta\t1s\n--- did not end: a TestKilled\nsignal: killed\nok  \tb\t1s\n"
	if people.String() != want {
		t.Errorf("got\n%swant\n%s", people.String(), want)
	}
}
