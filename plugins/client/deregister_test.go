package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

func providing(t *testing.T, c *Client, several ...Instance) {
	t.Helper()
	for _, i := range several {
		if err := c.Register(i); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitVisible(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeregister_SeveralDrainOnce: all instances are withdrawn before the first wait.
func TestDeregister_SeveralDrainOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		c := start(t, b)
		several := make([]Instance, 12)
		for n := range several {
			several[n] = greeter
			several[n].Host = fmt.Sprint("10.0.0.", n+1)
		}
		providing(t, c, several...)
		began := time.Now()
		if err := c.Deregister(context.Background(), several...); err != nil || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("twelve together: %v after %s, want one delay of a second", err, time.Since(began))
		}
		if n := entries(t, target); n != 0 {
			t.Errorf("%d entries after it", n)
		}
	})
}

// TestDeregister_OneByOne: the drain delays of successive calls do not count towards the time limit
// of the registry.
func TestDeregister_OneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := world(t)
		c := start(t, b)
		several := make([]Instance, 12)
		for n := range several {
			several[n] = greeter
			several[n].Host = fmt.Sprint("10.0.0.", n+1)
		}
		providing(t, c, several...)
		for n, i := range several {
			if err := c.Deregister(context.Background(), i); err != nil {
				t.Errorf("the %d. of twelve: %v", n+1, err)
			}
		}
	})
}

// TestDeregister_SharedAddress: names that an address still provides are not waited for.
func TestDeregister_SharedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := world(t)
		b.Shows = byName
		c := start(t, b)
		one, other := greeter, greeter
		one.Interfaces, other.Interfaces = []Interface{{Name: "api.One"}}, []Interface{{Name: "api.Other"}}
		providing(t, c, one, other)
		for _, i := range []Instance{one, other} {
			began := time.Now()
			if err := c.Deregister(t.Context(), i); err != nil || time.Since(began) > 1100*time.Millisecond {
				t.Errorf("Deregister(%s) = %v after %s", i.Interfaces[0].Name, err, time.Since(began))
			}
		}
	})
}

// TestDeregister_NothingPublished: a process whose registry was never reachable ends at once.
func TestDeregister_NothingPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		target.Fail(func(memory.Op, registry.Group) error { return errors.New("connection refused") })
		c := start(t, b)
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		began := time.Now()
		if err := c.Deregister(context.Background(), greeter); err != nil {
			t.Error(err)
		}
		_ = c.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("Deregister and Close took %s, and nothing was ever published", took)
		}
	})
}

// TestDeregister_DeniedRead: the absence cannot be observed.
func TestDeregister_DeniedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		denied := make(chan struct{})
		b.Source = &denying{b.Source, denied}
		c := start(t, b)
		providing(t, c, greeter)
		close(denied)
		synctest.Wait()
		began := time.Now()
		if err := c.Deregister(context.Background(), greeter); !errors.Is(err, ErrDenied) || time.Since(began) > time.Second {
			t.Errorf("Deregister() = %v after %s, want ErrDenied at once", err, time.Since(began))
		}
		synctest.Wait()
		if n := entries(t, target); n != 0 {
			t.Errorf("%d entries after it", n)
		}
	})
}

// denying is a source that may not read anything after a channel is closed.
type denying struct {
	registry.Source
	denied <-chan struct{}
}

func (d *denying) Run(ctx context.Context, t *registry.Table) error {
	reading, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		select {
		case <-ctx.Done():
		case <-d.denied:
		}
	}()
	err := d.Source.Run(reading, t)
	if ctx.Err() == nil {
		t.Unknown("*", fmt.Errorf("%w: not authorized", registry.ErrRefused))
	}
	<-ctx.Done()
	return err
}
