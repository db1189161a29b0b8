package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// deaf is a registry that reads and does not answer writes.
type deaf struct{ asked chan struct{} }

func (deaf) Records(context.Context, string) (map[string]string, error) { return nil, nil } //nolint:nilnil // there are none

func (d deaf) Record(ctx context.Context, _, _, _ string) error {
	close(d.asked)
	<-ctx.Done()
	return ctx.Err()
}

// TestARecordThatIsNotAnsweredHoldsNoLoopUp shows that a loop can ask what stays
// while the registry does not take what is to be remembered.
func TestARecordThatIsNotAnsweredHoldsNoLoopUp(t *testing.T) {
	t.Parallel()
	d := deaf{make(chan struct{})}
	tag := metadata.Fingerprint("b", metadata.BridgeLen)
	r := &removal{
		asked: func() {}, here: map[string]config.Bridge{tag: {Name: "b", OnRemove: withdraw}},
		recorder:  d,
		withdrawn: make(map[string]removed), gone: make(map[string]string), told: make(map[string]bool),
		log: slog.New(slog.DiscardHandler), tell: func(bridge.Event) {}, retry: time.Hour,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, func(context.Context) error { return nil }) }()
	<-d.asked
	told := make(chan string, 1)
	go func() {
		told <- r.stays(registry.Entry{Key: "10.0.0.1:80", Value: "dubbo://10.0.0.1:80/a?" + metadata.MarkKey + "=" + metadata.NewMark("shop", "gone").String()})
	}()
	select {
	case why := <-told:
		if why == "" {
			t.Error("an entry of a bridge that is gone does not stay")
		}
	case <-time.After(20 * time.Second):
		t.Error("the loop waits for the registry")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
