package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// keeperOf returns a keeper that answers by a function.
func keeperOf(offer string, ask func(ctx context.Context, offer string) (string, error)) *idKeeper {
	return &idKeeper{&kind.IDStore{Where: "here", Ask: ask}, offer}
}

func TestRegistryID(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("connection refused")
	for name, tt := range map[string]struct {
		given, kept string
		offer       string
		err         error // of every answer
		down        time.Duration
		want        string
		after       time.Duration // at the latest
		made        string
		warned      string
	}{
		"the registry's own":                       {kept: "k1", offer: "o1", want: "k1", made: "k1"},
		"made by the first":                        {offer: "o1", want: "o1", made: "o1"},
		"a registry that is down is waited for":    {kept: "k1", offer: "o1", down: time.Minute, want: "k1", after: 66 * time.Second, made: "k1"},
		"a dry run makes none":                     {want: "zk"},
		"who may not make one goes by the name":    {offer: "o1", err: fmt.Errorf("%w: no right", registry.ErrRefused), want: "zk", warned: "let our user make it"},
		"the configured one, which is kept":        {given: "g1", offer: "g1", want: "g1", made: "g1"},
		"the configured one, though down":          {given: "g1", offer: "g1", down: time.Minute, want: "g1", made: "g1"},
		"the configured one, though it may not be": {given: "g1", offer: "g1", err: registry.ErrRefused, want: "g1"},
		"the configured one, which agrees":         {given: "k1", kept: "k1", offer: "k1", want: "k1", made: "k1"},
		"the configured one, which does not agree": {given: "g1", kept: "k1", offer: "g1", want: "g1", made: "k1", warned: "kept=k1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				kept, began := tt.kept, time.Now()
				i := newRegistryID("zk", tt.given, keeperOf(tt.offer, func(_ context.Context, offer string) (string, error) {
					switch {
					case time.Since(began) < tt.down:
						return "", unreachable
					case tt.err != nil:
						return "", tt.err
					case kept == "":
						kept = offer
					}
					return kept, nil
				}), slog.New(slog.NewTextHandler(&log, nil)))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- i.run(ctx) }()
				if tt.after > 0 {
					time.Sleep(time.Second)
					synctest.Wait()
					if err := i.problem(); !errors.Is(err, unreachable) {
						t.Errorf("problem while the registry is down = %v, want %v", err, unreachable)
					}
				}
				if err := i.wait(ctx); err != nil || i.problem() != nil {
					t.Fatal(err, i.problem())
				}
				if took := time.Since(began); i.id != tt.want || i.hop() != metadata.Hop(tt.want) || took > tt.after {
					t.Errorf("%q after %s, want %q after %s", i.id, took, tt.want, tt.after)
				}
				time.Sleep(time.Hour)
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if kept != tt.made {
					t.Errorf("the registry keeps %q, want %q", kept, tt.made)
				}
				if lines := strings.Count(log.String(), "\n"); lines > 1 || (lines == 1) != (tt.warned != "") || !strings.Contains(log.String(), tt.warned) {
					t.Errorf("log = %q, want at most one warning, of %q", log.String(), tt.warned)
				}
			})
		})
	}
	t.Run("it ends with ctx, and whoever waits for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			i := newRegistryID("zk", "", keeperOf("", func(context.Context, string) (string, error) { return "", unreachable }), slog.New(slog.DiscardHandler))
			go func() { _ = i.run(ctx) }()
			if err := i.wait(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "zk") {
				t.Errorf("wait = %v, want that the id of zk is late", err)
			}
		})
	})
}

// TestRegistryID_Restored shows what happens to an id while the bridge runs.
func TestRegistryID_Restored(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		given   string
		next    string // what the registry keeps from then on
		down    time.Duration
		want    string // what it keeps in the end
		warned  string
		refused bool // what is asked from then on
	}{
		"nothing happens":                        {next: "k1", want: "k1"},
		"it was wiped":                           {want: "k1"},
		"it was wiped, and was down for long":    {down: time.Hour, want: "k1"},
		"it was wiped, and the id is configured": {given: "g1", want: "g1"},
		"another was faster after it was wiped":  {next: "o2", want: "o2", warned: "before=k1 kept=o2"},
		"it may not be read any more":            {next: "k1", want: "k1", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				var mu sync.Mutex // of what the registry keeps, and since when
				kept, wiped := cmp.Or(tt.given, "k1"), time.Time{}
				r := newRegistryID("zk", tt.given, keeperOf(cmp.Or(tt.given, "o1"), func(_ context.Context, offer string) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case !wiped.IsZero() && tt.refused:
						return "", registry.ErrRefused
					case !wiped.IsZero() && time.Since(wiped) < tt.down:
						return "", errors.New("connection refused")
					case kept == "":
						kept = offer
					}
					return kept, nil
				}), slog.New(slog.NewTextHandler(&log, nil)))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- r.run(ctx) }()
				time.Sleep(time.Hour)
				synctest.Wait()
				before := r.hop()
				mu.Lock()
				kept, wiped = tt.next, time.Now()
				mu.Unlock()
				time.Sleep(tt.down + 2*time.Minute)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if kept != tt.want || r.hop() != before || r.problem() != nil {
					t.Errorf("the registry keeps %q, want %q; we go by %q: %v", kept, tt.want, r.id, r.problem())
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if lines := strings.Count(log.String(), "\n"); lines > 1 || (lines == 1) != (tt.warned != "") || !strings.Contains(log.String(), tt.warned) {
					t.Errorf("log = %q, want at most one warning, of %q", log.String(), tt.warned)
				}
			})
		})
	}
}
