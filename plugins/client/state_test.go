package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestStateFile_UnusedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state.json")
		source := newScripted()
		c := open(t, source.backend(), client.Options{StateFile: file})
		source.all()
		for n := range 10_000 {
			if _, err := c.Resolve(t.Context(), client.Named(fmt.Sprintf("host-of-a-request-%d", n))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour) // much longer than KeepFresh
		synctest.Wait()
		_, _ = c.Resolve(t.Context(), client.Named("one"))
		time.Sleep(2 * time.Second)
		data, _ := os.ReadFile(file)
		if n := strings.Count(string(data), "host-of-a-request-"); n > 0 {
			t.Errorf("an hour later %d names nobody asks for, %d KiB", n, len(data)>>10)
		}
	})
}

func TestStateFile_Denial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state.json")
		source := newScripted()
		c, err := client.New(source.backend(), client.Options{StateFile: file})
		if err != nil {
			t.Fatal(err)
		}
		source.all(greeter("10.0.0.1"))
		w := c.Watch(greeterKey)
		next(t, w)
		time.Sleep(2 * time.Second)
		_ = c.Close()

		source = newScripted()
		c, err = client.New(source.backend(), client.Options{StateFile: file})
		if err != nil {
			t.Fatal(err)
		}
		source.do <- func(t *registry.Table) {
			t.Unknown("*", fmt.Errorf("%w: not authorized", registry.ErrRefused))
			t.Replace(func(func(*registry.Service) bool) {})
		}
		synctest.Wait()
		for _, when := range []string{"a start with everything denied", "long after it"} {
			s, err := c.Resolve(t.Context(), greeterKey)
			if err != nil || hosts(s) != "[10.0.0.1]" || !errors.Is(s.Err, client.ErrDenied) || s.Since.IsZero() {
				t.Errorf("%s: %s, %v, %s, %v", when, hosts(s), s.Err, s.Since, err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		_ = c.Close()
		data, _ := os.ReadFile(file)
		if !strings.Contains(string(data), "10.0.0.1") {
			t.Error("the file lacks the last good answer")
		}
	})
}

// TestStateFile_Age: watched answers are confirmed as long as the registry is reachable. Answers that
// were confirmed too long ago are not used.
func TestStateFile_Age(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state.json")
		source := newScripted()
		c, err := client.New(source.backend(), client.Options{StateFile: file})
		if err != nil {
			t.Fatal(err)
		}
		source.all(greeter("10.0.0.1"))
		w := c.Watch(greeterKey)
		next(t, w)
		time.Sleep(48 * time.Hour) // nothing changes
		left := time.Now()
		_ = c.Close()
		for n, want := range []string{"[10.0.0.1]", ""} {
			after := time.Hour + time.Duration(n)*29*time.Hour
			time.Sleep(time.Until(left.Add(after)))
			source = newScripted()
			c := open(t, source.backend(), client.Options{StateFile: file})
			source.away(errors.New("connection refused"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := c.Resolve(ctx, greeterKey)
			cancel()
			if want == "" && !errors.Is(err, client.ErrUnreachable) || want != "" && (hosts(s) != want || left.Sub(s.Since) > time.Hour) {
				t.Errorf("%s later: %s of %s, %v", after, hosts(s), s.Since, err)
			}
			_ = c.Close()
		}
	})
}

// TestStateFile_EmptyRegistry: providers come back one by one after a start without the registry, as
// after an outage.
func TestStateFile_EmptyRegistry(t *testing.T) {
	const doubt, both = 15 * time.Second, "[10.0.0.1 10.0.0.2]"
	for name, backend := range map[string]func(*scripted) client.Backend{
		"a source of everything":      (*scripted).backend,
		"a source of requested names": (*scripted).byInterest,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := client.Options{ForgetAfter: doubt, StateFile: filepath.Join(t.TempDir(), "state.json")}
				start := func() (*scripted, *client.Client, *client.Watch) {
					source := newScripted()
					c := open(t, backend(source), o)
					source.away(errors.New("connection refused"))
					return source, c, c.Watch(greeterKey)
				}
				source, c, w := start()
				source.all(greeter("10.0.0.1", "10.0.0.2"))
				next(t, w)
				_ = c.Close()
				for range 2 {
					source, c, w = start()
					if s := next(t, w); hosts(s) != both || s.Since.IsZero() {
						t.Errorf("a start without the registry: %s of %s", hosts(s), s.Since)
					}
					source.all()
					if s := next(t, w); hosts(s) != both || s.Err != nil {
						t.Errorf("back and empty: %s, %v", hosts(s), s.Err)
					}
					time.Sleep(doubt / 3)
					_ = c.Close()
				}
				source, c, w = start()
				next(t, w)
				source.all(greeter("10.0.0.2"))
				time.Sleep(doubt - time.Second)
				synctest.Wait()
				if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != both {
					t.Errorf("back for less than the doubt: %s, %v", hosts(s), err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != "[10.0.0.2]" {
					t.Errorf("back for the doubt: %s, %v", hosts(s), err)
				}
			})
		})
	}
}

// TestStateFile_AnotherRegistry: an application that moves to another registry does not use the
// answers of the old one.
func TestStateFile_AnotherRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state.json")
		in := func(place string) (*scripted, *client.Client) {
			source := newScripted()
			b := source.backend()
			b.Place = place
			return source, open(t, b, client.Options{StateFile: file})
		}
		source, c := in("staging")
		source.all(greeter("10.9.0.1"))
		if _, err := c.Resolve(t.Context(), greeterKey); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()

		source, c = in("production")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s, err := c.Resolve(ctx, greeterKey); err == nil {
			t.Errorf("before the registry answered: %s, want none of another registry", hosts(s))
		}
		source.all(greeter("10.8.8.8"))
		if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != "[10.8.8.8]" || s.Err != nil || !s.Since.IsZero() {
			t.Errorf("%s, %v, %s, %v", hosts(s), s.Err, s.Since, err)
		}
		_ = c.Close()

		_, c = in("production")
		if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != "[10.8.8.8]" {
			t.Errorf("its own file: %s, %v", hosts(s), err)
		}
	})
}

// TestStateFile_LeftMeanwhile: an answer with endpoints only from the file is not current.
func TestStateFile_LeftMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state.json")
		source := newScripted()
		c := open(t, source.byInterest(), client.Options{StateFile: file})
		first := c.Watch(greeterKey)
		source.all(greeter("10.0.0.1", "10.0.0.2"))
		next(t, first)
		_ = c.Close()
		confirmed := time.Now()
		time.Sleep(time.Minute)

		source = newScripted()
		c = open(t, source.byInterest(), client.Options{StateFile: file})
		w := c.Watch(greeterKey)
		defer w.Stop()
		next(t, w)
		source.all(greeter("10.0.0.1"))
		s := next(t, w)
		if hosts(s) != "[10.0.0.1 10.0.0.2]" || s.Err != nil || s.Since.IsZero() || s.Since.After(confirmed) {
			t.Errorf("one of two left meanwhile: %s, %v, since %s; want both, since the first run", hosts(s), s.Err, s.Since)
		}
		if got, err := c.Resolve(t.Context(), greeterKey); err != nil || got.Since.IsZero() {
			t.Errorf("Resolve() = since %s, %v, want as the watch has it", got.Since, err)
		}
		if s = next(t, w); hosts(s) != "[10.0.0.1]" || !s.Since.IsZero() {
			t.Errorf("after the doubt: %s, since %s", hosts(s), s.Since)
		}
	})
}

// TestOutage_Unconfirmed: an answer with endpoints only from before an outage is not current.
func TestOutage_Unconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		source.all(greeter("10.0.0.1", "10.0.0.2"))
		w := c.Watch(greeterKey)
		defer w.Stop()
		next(t, w)
		time.Sleep(time.Minute)
		lost := time.Now()
		source.away(errors.New("connection refused"))
		next(t, w)
		time.Sleep(time.Minute)
		source.all(greeter("10.0.0.1"))
		if s := next(t, w); hosts(s) != "[10.0.0.1 10.0.0.2]" || s.Err != nil || !s.Since.Equal(lost) {
			t.Errorf("back: %s, %v, since %s; want both, since %s", hosts(s), s.Err, s.Since, lost)
		}
		source.all(greeter("10.0.0.1", "10.0.0.2"))
		if s := next(t, w); hosts(s) != "[10.0.0.1 10.0.0.2]" || !s.Since.IsZero() {
			t.Errorf("both are back: %s, since %s", hosts(s), s.Since)
		}
	})
}

// TestWaitVisible_OwnAddressInTheStateFile: an earlier run was visible at the address.
func TestWaitVisible_OwnAddressInTheStateFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state.json")
		source := newScripted()
		c := open(t, source.backend(), client.Options{StateFile: file})
		source.all(greeter("10.0.0.1"))
		if _, err := c.Resolve(t.Context(), greeterKey); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()

		source = newScripted()
		c = open(t, source.backend(), client.Options{StateFile: file})
		source.all()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		own := client.Instance{Application: "greeter", Interfaces: []client.Interface{{Name: "api.Greeter"}}, Host: "10.0.0.1", Port: 20000}
		if err := c.WaitVisible(ctx, own); err == nil {
			t.Error("WaitVisible() = nil, and the registry has nobody")
		}
	})
}
