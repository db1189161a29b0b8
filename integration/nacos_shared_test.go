package integration_test

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// TestNacos_Shared has others at work where a bridge writes: a second bridge
// of its owner, which Nacos cannot refuse, and somebody at the console.
func TestNacos_Shared(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	from := harness.StartZooKeeper(t)
	providers := harness.Connect(t, from.Address)
	for _, iface := range []string{"api.A", "api.B"} {
		providers.Create(t, "/dubbo/"+iface+"/providers/"+url.QueryEscape("tri://127.0.0.1:20880/"+iface+"?interface="+iface+"&side=provider"), "")
	}
	eachNacos(t, func(t *testing.T, version int) {
		server := harness.SharedNacos(t, version)
		t.Run("words of an owner outlive its processes", func(t *testing.T) { nacosKeepsWords(t, server) })
		bridge := func(iface string) *harness.Bridge {
			return harness.ConfiguredBridge(t, fmt.Sprintf(`owner: duplicate
registries:
  near: { zookeeper: { servers: [%q] } }
  far: { nacos: { %s }, timing: { refresh: 3s } }
bridges:
  - { name: onward, from: near, to: far, formats: [dubbo-interface], select: { include: ["*:%s::"], allow: [127.0.0.0/8] }, guard: { %s } }`,
				from.Address, server.Settings(), iface, harness.Swift))
		}
		a, b := bridge("api.A"), bridge("api.B")
		a.Start(t)
		sdk := nacossdk.ConnectTo(t, server)
		seen := map[string]*nacossdk.Watch{}
		for _, iface := range []string{"api.A", "api.B"} {
			seen[iface] = sdk.Subscribe(t, "providers:"+iface+"::")
		}
		seen["api.A"].Await(t, time.Minute, "127.0.0.1:20880")
		t.Run("two bridges of one owner delete nothing of each other", func(t *testing.T) { nacosHasDuplicates(t, a, b, seen) })
		t.Run("what somebody set in the console stays, is shown, and is fought by nobody", func(t *testing.T) {
			nacosIsEdited(t, server, a, seen["api.A"])
		})
	})
}

func nacosKeepsWords(t *testing.T, server *harness.Nacos) {
	t.Helper()
	target, stop := nacosTarget(t, at(server))
	beside, _ := nacosTarget(t, at(server))
	var all sync.WaitGroup
	for n, who := range []*nacos.Target{target, beside, target, beside} {
		all.Go(func() {
			if err := who.Record(t.Context(), "decisions", map[string]string{fmt.Sprint("h", n): fmt.Sprint("decision ", n)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	if err := beside.Record(t.Context(), "decisions", map[string]string{"h0": ""}); err != nil {
		t.Error(err)
	}
	stop()
	later, _ := nacosTarget(t, at(server))
	harness.Eventually(t, 30*time.Second, "the words are there", func() error {
		got, err := later.Records(t.Context(), "decisions")
		if err != nil {
			return err
		}
		return harness.Same(slices.Sorted(maps.Values(got)), []string{"decision 1", "decision 2", "decision 3"})
	})
}

func nacosHasDuplicates(t *testing.T, a, b *harness.Bridge, seen map[string]*nacossdk.Watch) {
	t.Helper()
	b.Start(t)
	seen["api.B"].Await(t, time.Minute, "127.0.0.1:20880")
	began := time.Now()
	harness.Eventually(t, 2*time.Minute, "each reports that it has no effect on what the other publishes", func() error {
		for _, duplicate := range []*harness.Bridge{a, b} {
			if _, out, _ := duplicate.Do(t, "events"); !strings.Contains(out, "another process of this owner") {
				return fmt.Errorf("events: %s", out)
			}
		}
		return nil
	})
	if code, out, _ := a.Do(t, "preflight"); code != 0 || !strings.Contains(out, "another process publishes as this owner") {
		t.Errorf("preflight: %d, %s", code, out)
	}
	for _, yes := range []string{"--yes=false", "--yes"} {
		if code, out, text := a.Do(t, "purge", "--owner", "duplicate", yes); code != 2 || out != "" || !strings.Contains(text, "a bridge of owner duplicate still runs: it publishes") {
			t.Errorf("purge beside bridges that run: %d, %s%s", code, out, text)
		}
	}
	for iface, w := range seen {
		for _, list := range w.Since(began) {
			if len(list.Addresses) != 1 {
				t.Errorf("subscribers of %s were sent %v", iface, list.Addresses)
			}
		}
	}
	b.Stop(t)
	seen["api.B"].Await(t, time.Minute) // with who published it
	seen["api.A"].Await(t, time.Minute, "127.0.0.1:20880")
}

func nacosIsEdited(t *testing.T, server *harness.Nacos, a *harness.Bridge, seen *nacossdk.Watch) {
	t.Helper()
	written := seen.Instances()[0]
	edit := written
	edit.Weight, edit.Metadata = written.Weight/2, map[string]string{"edited": "yes"}
	began := time.Now()
	server.Edit(t, "providers:api.A::", edit)
	shown := func(want string) {
		harness.Eventually(t, 2*time.Minute, "why says "+want, func() error {
			if _, out, _ := a.Do(t, "why", "api.A"); !strings.Contains(out, want) {
				return fmt.Errorf("why: %s", out)
			}
			return nil
		})
	}
	shown("other values than were written")
	now := seen.Instances()[0]
	if now.Weight != edit.Weight || now.Metadata["edited"] != "yes" || now.Metadata[metadata.MarkKey] != written.Metadata[metadata.MarkKey] {
		t.Errorf("readers see %+v, want the edit beside what was written", now)
	}
	for _, list := range seen.Since(began) {
		if len(list.Addresses) != 1 {
			t.Errorf("subscribers were sent %v", list.Addresses)
		}
	}
	sent := 0 // next to the batches, of which there is one a refresh
	_, out, _ := a.Do(t, "events")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "providers:api.A") && !strings.Contains(line, "  applied  ") {
			sent++
		}
	}
	if sent > 5 {
		t.Errorf("it is reported again and again: %s", out)
	}
	server.Edit(t, "providers:api.A::", model.Instance{
		Ip: written.Ip, Port: written.Port, ClusterName: written.ClusterName, Weight: written.Weight, Metadata: written.Metadata,
	})
	shown("reason    synced")
	server.Disable(t, "providers:api.A::", written)
	shown("reason    refused")
	seen.Await(t, time.Minute)
	server.Edit(t, "providers:api.A::", written)
	shown("reason    synced")
	seen.Await(t, time.Minute, "127.0.0.1:20880")
}
