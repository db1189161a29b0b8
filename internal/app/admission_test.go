package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/cause"
)

// TestAdmission_Refusal shows both sides of the time that
// counts as the start.
func TestAdmission_Refusal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		since time.Duration // its start
		ends  bool
	}{
		"at the start": {0, true},
		"of a registry that was out of reach till then": {startPeriod + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnsembles(t)
			if _, err := e.program("shpo", "").RunOnce(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			r, err := newRuntime(e.program("shop", ""), buildOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := r.target(config.TargetKey{Registry: "zk2"}).admission
			a.fatalUntil = a.fatalUntil.Add(-tc.since)
			ended := make(chan error, 1)
			go func() { ended <- a.keepAlive(ctx) }()
			if !tc.ends {
				eventually(t, "it is reported", func() bool { return strings.Contains(a.refusal(), `"shpo"`) })
				e.to.Delete("/xds-bridge/shpo/bridges")
				eventually(t, "it is admitted", func() bool { _, alive := e.to.Get("/xds-bridge/shop/alive"); return alive && a.refusal() == "" })
				cancel()
			}
			err = <-ended
			if caused, ok := errors.AsType[*cause.Error](err); ok != tc.ends || ok && caused.Kind != cause.Usage {
				t.Errorf("wait = %v, want a usage error: %t", err, tc.ends)
			}
		})
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for began := time.Now(); !ok(); began = time.Now() {
		if began.After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(max(5*time.Millisecond, min(4*time.Since(began), 200*time.Millisecond))) // a look uses the processor too
	}
}
