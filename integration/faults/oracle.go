// Package faults tries the bridge with every fault that real servers can be
// made to have. Its tests are named after what they show, with the id of the
// fault.
package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/history"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

// HealTime is within what everything has to agree again after the last fault
// healed: the longest wait of the bridge's configurations here (2 s), one
// batch, and one re-reading (5 s), thrice because the machine is shared, and
// ten seconds for servers that only just started.
const HealTime = 40 * time.Second

// An Oracle knows what each service truly has. It compares three sets: that
// one, what the bridge says it has written, and what subscribers see; and it
// has everything that happened until they are equal judged.
type Oracle struct {
	*history.Recorder

	Bridge *harness.Bridge

	// Others returns everything in the registry that is not the bridge's, with
	// its versions; it may not change.
	Others func(testing.TB) string

	// Heads is how many entries the target has of a service next to one for
	// each address.
	Heads int

	// Within is the time to heal, HealTime unless the registry takes longer.
	Within time.Duration
}

// NewOracle returns an oracle that knows of no service.
func NewOracle(b *harness.Bridge, others func(testing.TB) string) *Oracle {
	return &Oracle{Recorder: history.New(), Bridge: b, Others: others, Within: HealTime}
}

// Agree waits until the three sets are equal and returns what that took. The
// history of all services is judged then, or once that lasts too long.
func (o *Oracle) Agree(t testing.TB) {
	t.Helper()
	defer o.Judge(t)
	harness.Eventually(t, o.Within, "source, written and visible sets are equal", func() error {
		for service := range o.Truth() {
			if err := o.Shown(service); err != nil {
				says, _ := Says(t, o.Bridge)
				return fmt.Errorf("a subscriber of %s: %w; the bridge says %+v", service, err, says)
			}
		}
		return o.written(t)
	})
}

// written compares what the bridge says it has written with the truth. Where
// several of its bridges know a service, each that accepts it has to have it.
func (o *Oracle) written(t testing.TB) error {
	t.Helper()
	all, err := Says(t, o.Bridge)
	if err != nil {
		return err
	}
	for service, want := range o.Truth() {
		found := false
		for _, said := range all {
			if !strings.Contains(said.Service, service) || said.Reason == "skipped" {
				continue
			}
			found = true
			if err := said.wrote(len(want), o.Heads); err != nil {
				return err
			}
		}
		if !found && len(want) > 0 {
			return fmt.Errorf("the bridge does not know %s", service)
		}
	}
	return nil
}

func (s Said) wrote(entries, heads int) error {
	if entries == 0 && s.Entries <= heads {
		return nil
	}
	if s.Reason != "synced" || s.Entries != entries+heads {
		return fmt.Errorf("the bridge says %+v, want %d entries that are synced", s, entries+heads)
	}
	return nil
}

// A Fault is one thing that goes wrong.
type Fault struct {
	Name  string
	Break func(*testing.T) // begins it
	Lasts time.Duration    // how long it lasts at least
	Heal  func(*testing.T) // ends it; nil where it ends by itself
	// Change changes the source meanwhile and informs the oracle; nil is the
	// change of the world.
	Change func(*testing.T)
	After  func(*testing.T) // what has to hold besides once all agree; may be nil

	// Loses says why servers remove what is there for a while, where no
	// bridge can prevent that: "What cannot be promised" in
	// docs/reliability.md. Services of Keeps are kept nevertheless.
	Loses string
	Keeps []string
}

// Try tries the bridge with a fault, in a subtest: while it lasts the source
// changes; after it everything has to agree by itself, what happened meanwhile
// has to keep the guarantees, and what is others' is as it was.
func (o *Oracle) Try(t *testing.T, f Fault) {
	t.Helper()
	ok := t.Run(f.Name, func(t *testing.T) {
		others := o.Others(t)
		if f.Loses != "" {
			t.Log("may be missed for a while: " + f.Loses)
			// Entries that the servers lost look as if the bridge had withdrawn them, and what it writes again at once is what the
			// source reported it last: the change of meanwhile may still be in flight to it.
			defer o.Allow([]guarantees.Guarantee{guarantees.NeverLess, guarantees.NoSpuriousWrite, guarantees.NoResurrection}, f.Keeps...)()
		}
		f.Break(t)
		f.Change(t)
		<-time.NewTimer(f.Lasts).C
		if f.Heal != nil {
			f.Heal(t)
		}
		o.Agree(t)
		if err := harness.Same(o.Others(t), others); err != nil {
			t.Errorf("what is others' was touched: %v", err)
		}
		if f.After != nil {
			f.After(t)
		}
	})
	if !ok {
		t.FailNow() // what follows would only wait in vain
	}
}

// Said is what the bridge says of a service of one of its bridges.
type Said struct {
	Bridge  string `json:"bridge"`
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Detail  string `json:"detail"`
	Entries int    `json:"entries"`
}

// Says returns what the bridge says of every service.
func Says(t testing.TB, b *harness.Bridge) ([]Said, error) {
	t.Helper()
	code, out, errOut := b.Do(t, "status", "-o", "json")
	var document struct {
		Loops []struct {
			Services []Said `json:"services"`
		} `json:"loops"`
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		return nil, errors.Join(fmt.Errorf("status ended with %d: %s", code, errOut), err)
	}
	var says []Said
	for _, loop := range document.Loops {
		says = append(says, loop.Services...)
	}
	return says, nil
}

// SaysReason waits until the bridge gives a reason for a service.
func (o *Oracle) SaysReason(t testing.TB, service, reason string) {
	t.Helper()
	harness.Eventually(t, HealTime, "the status says of "+service+" that it is "+reason, func() error {
		all, err := Says(t, o.Bridge)
		if err == nil && !slices.ContainsFunc(all, func(s Said) bool { return strings.Contains(s.Service, service) && s.Reason == reason }) {
			err = fmt.Errorf("the status says %+v", all)
		}
		return err
	})
}

// Holds returns the ids of what the bridge holds back.
func Holds(t testing.TB, b *harness.Bridge) ([]string, error) {
	t.Helper()
	var page struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	body, err := harness.Get(t, "http://"+b.Admin+"/api/v1/holds")
	if err == nil {
		err = json.Unmarshal(body, &page)
	}
	var ids []string
	for _, hold := range page.Items {
		ids = append(ids, hold.ID)
	}
	return ids, err
}

// Post asks the status API to do something and returns its answer.
func Post(t testing.TB, b *harness.Bridge, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.Admin+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// LatestSince returns when a subscriber of a service was first sent the list
// that it sees now.
func (o *Oracle) LatestSince(service string) time.Time {
	lists := o.Notifications(service)
	return lists[len(lists)-1].At
}

// CPU returns how long the bridge's process has worked so far.
func CPU(t testing.TB, b *harness.Bridge) time.Duration {
	t.Helper()
	return time.Duration(Metric(t, b, "process_cpu_seconds_total") * float64(time.Second))
}

// Metric returns the value of one line of the bridge's metrics; 0 where there
// is none yet.
func Metric(t testing.TB, b *harness.Bridge, line string) (value float64) {
	t.Helper()
	for text := range strings.Lines(b.Metrics(t)) {
		if rest, ok := strings.CutPrefix(text, line+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return value
}
