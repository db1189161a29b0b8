// Package faults tries the bridge with every fault that real servers can be
// made to have. Its tests are named after what they show, with the id of the
// fault; docs/reliability.md is made of their results.
package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/reliability"
)

// HealTime is within what everything has to agree again after the last fault
// healed: the longest wait of the bridge's configurations here (2 s), one
// batch, and one re-reading (5 s), thrice because the machine is shared, and
// ten seconds for servers that only just started.
const HealTime = 40 * time.Second

// Lists returns what a subscriber of the registry's own client was told of a
// service, oldest first.
type Lists func() []harness.Seen

// An Oracle knows what each service truly has. It compares three sets: that
// one, what the bridge says it has written, and what subscribers see.
type Oracle struct {
	Bridge *harness.Bridge

	// Others tells everything in the registry that is not the bridge's, with
	// its versions; it has to stay as it is.
	Others func(testing.TB) string

	// Heads is how many entries the target has of a service beside one for
	// each address.
	Heads int

	// Within is the time to heal, HealTime unless the registry needs more.
	Within time.Duration

	truth map[string][]string // addresses by the service's name in the status
	seen  map[string]Lists
}

// NewOracle returns an oracle that knows of no service.
func NewOracle(b *harness.Bridge, others func(testing.TB) string) *Oracle {
	return &Oracle{Bridge: b, Others: others, Within: HealTime, truth: make(map[string][]string), seen: make(map[string]Lists)}
}

// Subscribe tells where a subscriber of a service can be listened to.
func (o *Oracle) Subscribe(service string, lists Lists) { o.seen[service] = lists }

// Has tells what a service truly has from now on, none included.
func (o *Oracle) Has(service string, addresses ...string) {
	o.truth[service] = slices.Sorted(slices.Values(addresses))
}

// Truth returns what each service truly has.
func (o *Oracle) Truth() map[string][]string { return maps.Clone(o.truth) }

// Agree waits until the three sets are equal and returns what that took.
func (o *Oracle) Agree(t testing.TB) time.Duration {
	t.Helper()
	return harness.Eventually(t, o.Within, "source, written and visible sets are equal", func() error {
		for service := range o.truth {
			if err := o.Shown(service); err != nil {
				says, _ := Says(t, o.Bridge)
				return fmt.Errorf("a subscriber of %s: %w; the bridge says %+v", service, err, says)
			}
		}
		return o.written(t)
	})
}

// Shown reports where a subscriber of a service does not see the truth.
func (o *Oracle) Shown(service string) error {
	return harness.Same(o.visible(service), o.truth[service])
}

func (o *Oracle) visible(service string) []string {
	if lists := o.seen[service](); len(lists) > 0 {
		return lists[len(lists)-1].Addresses
	}
	return nil
}

// written compares what the bridge says it has written with the truth. Where
// several of its ways know a service, each that takes it has to have it.
func (o *Oracle) written(t testing.TB) error {
	t.Helper()
	all, err := Says(t, o.Bridge)
	if err != nil {
		return err
	}
	for service, want := range o.truth {
		found := false
		for _, said := range all {
			if !strings.Contains(said.Service, service) || said.Reason == "excluded" {
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

// Fewest fails the test where a subscriber was told of a list that lacks an
// address which was there all the time since a moment.
func (o *Oracle) Fewest(t testing.TB, since time.Time, stable map[string][]string) {
	t.Helper()
	for service, want := range stable {
		for _, list := range o.seen[service]() {
			if list.At.Before(since) {
				continue
			}
			missing := slices.DeleteFunc(slices.Clone(want), func(a string) bool { return slices.Contains(list.Addresses, a) })
			if len(missing) > 0 {
				t.Errorf("after %s a subscriber of %s no longer saw %v, which were there all the time: %v",
					list.At.Sub(since), service, missing, list.Addresses)
			}
		}
	}
}

// Stable returns what has been in every one of several truths.
func Stable(truths ...map[string][]string) map[string][]string {
	all := maps.Clone(truths[0])
	for _, truth := range truths[1:] {
		for service, addresses := range all {
			all[service] = slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return !slices.Contains(truth[service], a) })
		}
	}
	return all
}

// A Fault is one thing that goes wrong.
type Fault struct {
	Name  string
	With  string           // the servers, where they are not those of the world
	Break func(*testing.T) // begins it
	Lasts time.Duration    // how long it lasts at least
	Heal  func(*testing.T) // ends it; nil where it ends by itself
	// Change changes the source meanwhile and tells the oracle; nil is the
	// change of the world.
	Change func(*testing.T)
	After  func(*testing.T) // what has to hold besides once all agree; may be nil

	// MayLose is set where what is there goes for a while, as it has to: with
	// a session that ended, or with the only publisher.
	MayLose bool
}

// Try tries the bridge with a fault, in a subtest: while it lasts the source
// changes, and no subscriber may lose what does not; after it everything has
// to agree by itself, and what is others' is as it was.
func (o *Oracle) Try(t *testing.T, f Fault) {
	t.Helper()
	ok := t.Run(f.Name, func(t *testing.T) {
		if f.With != "" {
			t.Attr(reliability.With, f.With)
		}
		others, before, since := o.Others(t), o.Truth(), time.Now()
		f.Break(t)
		f.Change(t)
		<-time.NewTimer(f.Lasts).C
		if f.Heal != nil {
			f.Heal(t)
		}
		took := o.Agree(t)
		t.Attr(reliability.Healed, took.Round(time.Millisecond).String())
		if !f.MayLose {
			o.Fewest(t, since, Stable(before, o.truth))
		}
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

// Said is what the bridge says of a service on one of its ways.
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

// Settled returns when a subscriber of a service was first told of the list
// that it sees now.
func (o *Oracle) Settled(service string) time.Time {
	lists := o.seen[service]()
	return lists[len(lists)-1].At
}

// Told returns how many lists a subscriber of a service was told of so far.
func (o *Oracle) Told(service string) int { return len(o.seen[service]()) }

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
