package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestAnswer_NewName: a name that the source reports slowly does not delay others.
func TestAnswer_NewName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.byInterest(), client.Options{})
		w := c.Watch(greeterKey) // a permanent watch
		defer w.Stop()
		go func() {
			source.do <- func(t *registry.Table) { t.Replace(func(y func(*registry.Service) bool) { y(greeter("10.0.0.1")) }) }
		}()
		next(t, w)
		if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != "[10.0.0.1]" {
			t.Fatal(s, err)
		}
		slow := c.Watch(client.ByInterface("api.Slow", "", "")) // the source reports it slowly
		defer slow.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if s, err := c.Resolve(ctx, greeterKey); err != nil || hosts(s) != "[10.0.0.1]" {
			t.Errorf("a name that is known and watched, connected: %s, %v", hosts(s), err)
		}
	})
}

func TestAnswer_OutageNewName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.byInterest(), client.Options{})
		w := c.Watch(greeterKey)
		defer w.Stop()
		go func() {
			source.do <- func(t *registry.Table) { t.Replace(func(y func(*registry.Service) bool) { y(greeter("10.0.0.1")) }) }
		}()
		next(t, w)
		source.do <- func(t *registry.Table) { t.Stale(errors.New("connection refused")) }
		synctest.Wait()
		if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != "[10.0.0.1]" {
			t.Fatal(s, err)
		}
		other := c.Watch(client.ByInterface("api.Other", "", "")) // a first call to something else
		defer other.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if s, err := c.Resolve(ctx, greeterKey); err != nil || hosts(s) != "[10.0.0.1]" {
			t.Errorf("away, known: %s, %v; want the last known answer with Err set", hosts(s), err)
		}
	})
}

// TestAnswer_ShortOutage: the registry is unreachable and then empty before the index drains once.
func TestAnswer_ShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		source.all(greeter("10.0.0.1", "10.0.0.2"))
		w := c.Watch(greeterKey)
		defer w.Stop()
		next(t, w)
		source.do <- func(t *registry.Table) {
			t.Stale(errors.New("connection refused"))
			t.Replace(func(func(*registry.Service) bool) {})
		}
		synctest.Wait()
		if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != "[10.0.0.1 10.0.0.2]" {
			t.Errorf("back and empty: %s, %v", hosts(s), err)
		}
	})
}

// TestAnswer_FirstRace: the source reports a name between two reads of the table.
func TestAnswer_FirstRace(t *testing.T) {
	wish := registry.NewInterest()
	source := eager{wish}
	c := open(t, client.Backend{Kind: "test", Source: source, Interest: wish, Names: func(q client.Query) []string { return []string{q.String()} }}, client.Options{KeepFresh: time.Millisecond})
	tries := 1_000
	if testing.Short() {
		tries = 30
	}
	empty := 0
	for n := range tries {
		w := c.Watch(client.ByInterface(fmt.Sprintf("api.G%d", n), "", ""))
		s, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Endpoints) == 0 && s.Err == nil {
			empty++
		}
		w.Stop()
	}
	if empty > 0 {
		t.Errorf("%d of %d first answers said, as current, that nobody provides what was there", empty, tries)
	}
}

// eager reports each name at once: first the services, and then that the name is reported.
type eager struct{ wish *registry.Interest }

func (s eager) Run(ctx context.Context, t *registry.Table) error {
	t.Replace(func(func(*registry.Service) bool) {})
	had := map[string]bool{}
	for {
		names := map[string]error{}
		now := map[string]bool{}
		for _, name := range s.wish.Names() {
			now[name], names[name] = true, nil
			if !had[name] {
				g := greeter("10.0.0.1")
				g.Name = registry.Name(name)
				g.Interfaces = []registry.Interface{{Name: name[len("service key providers:") : len(name)-2]}}
				t.Put(g)
			}
		}
		for name := range had {
			if !now[name] {
				t.Delete(registry.Name(name))
			}
		}
		had = now
		s.wish.Report(names)
		select {
		case <-ctx.Done():
			return nil
		case <-s.wish.Changed():
		default:
		}
	}
}

// TestAnswer_States: the states of answers and errors.
func TestAnswer_States(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.byInterest(), client.Options{})
		ask := func() (client.Snapshot, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			return c.Resolve(ctx, greeterKey)
		}
		if _, err := ask(); !errors.Is(err, client.ErrPending) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("not reported: %v", err)
		}
		source.away(errors.New("connection refused")) // this source has reported everything nevertheless
		if s, err := ask(); err != nil || !errors.Is(s.Err, client.ErrUnreachable) {
			t.Errorf("away: %v, %v", s.Err, err)
		}
		source.all()
		if s, err := ask(); err != nil || s.Err != nil || len(s.Endpoints) > 0 {
			t.Errorf("nobody: %+v, %v", s, err)
		}
		source.all(greeter("10.0.0.1"))
		source.deny(greeterKey)
		if s, err := ask(); err != nil || !errors.Is(s.Err, client.ErrDenied) || hosts(s) != "[10.0.0.1]" {
			t.Errorf("denied, and known from before: %s, %v, %v", hosts(s), s.Err, err)
		}
		other := client.ByInterface("api.Secret", "", "")
		w := c.Watch(other)
		defer w.Stop()
		source.deny(other)
		began := time.Now()
		if _, err := w.Next(t.Context()); !errors.Is(err, client.ErrDenied) || time.Since(began) > 0 {
			t.Errorf("denied, and nothing known: %v after %s", err, time.Since(began))
		}
		source.all(greeter("10.0.0.1"))
		if s := next(t, w); s.Err != nil || len(s.Endpoints) > 0 {
			t.Errorf("no longer denied: %+v", s)
		}
	})
}

// TestAnswer_Unreported: of a source that reports everything.
func TestAnswer_Unreported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		source.do <- func(t *registry.Table) {
			t.Replace(func(func(*registry.Service) bool) {})
			t.Unknown("dubbo-interface:/dubbo/api.Greeter", fmt.Errorf("%w: no right to read", registry.ErrRefused))
		}
		synctest.Wait()
		if s, err := c.Resolve(t.Context(), greeterKey); !errors.Is(err, client.ErrDenied) {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestAnswer_CallbackPanic: a panic in the goroutine of an adapter must not end the application.
func TestAnswer_CallbackPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		w := c.Watch(greeterKey)
		var got []string
		_ = w.Follow(func(s client.Snapshot, err error) {
			if err == nil {
				got = append(got, hosts(s))
				panic("a defect")
			}
		})
		source.all(greeter("10.0.0.1"))
		source.all(greeter("10.0.0.2"))
		synctest.Wait()
		if fmt.Sprint(got) != "[[10.0.0.1] [10.0.0.2]]" {
			t.Error(got)
		}
	})
}

// TestAnswer_FollowerEnd: Close waits for callbacks and notifies them; Stop does neither.
func TestAnswer_FollowerEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		var stopped, closed, late []string
		recorder := func(to *[]string) func(client.Snapshot, error) {
			return func(s client.Snapshot, err error) {
				<-time.NewTimer(time.Second).C // Close waits
				*to = append(*to, fmt.Sprint(hosts(s), err))
			}
		}
		one, two := c.Watch(greeterKey), c.Watch(greeterKey)
		_ = one.Follow(recorder(&stopped))
		_ = two.Follow(recorder(&closed))
		source.all(greeter("10.0.0.1"))
		<-time.NewTimer(2 * time.Second).C
		one.Stop()
		synctest.Wait()
		_ = c.Close()
		_ = c.Watch(greeterKey).Follow(recorder(&late))
		for _, is := range []struct{ got, want []string }{
			{stopped, []string{"[10.0.0.1]<nil>"}},
			{closed, []string{"[10.0.0.1]<nil>", "[]closed"}},
			{late, []string{"[]closed"}},
		} {
			if fmt.Sprint(is.got) != fmt.Sprint(is.want) {
				t.Errorf("%v, want %v", is.got, is.want)
			}
		}
	})
}

// TestAnswer_Denial: a denied query may be granted before ctx ends.
func TestAnswer_Denial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.byInterest(), client.Options{})
		source.all()
		ended := make(chan error, 1)
		go func() { ended <- c.WaitVisible(t.Context(), at("10.0.0.1", "api.Greeter")) }()
		synctest.Wait()
		source.deny(greeterKey)
		if err := c.Status().Problem(); !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "api.Greeter") {
			t.Errorf("what is watched is denied: %v", err)
		}
		source.all(greeter("10.0.0.1"))
		if err := <-ended; err != nil {
			t.Errorf("no longer denied: %v", err)
		}
		if err := c.Status().Problem(); err != nil {
			t.Errorf("nothing is denied: %v", err)
		}
	})
}
