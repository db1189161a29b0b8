package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// A registry that loses its data with each crash is back and empty for less than the period of a
// doubt.
func TestDoubt_CountsOnlyWhileTheRegistryIsCurrent(t *testing.T) {
	const doubt = 15 * time.Second
	for name, backend := range map[string]func(*scripted) client.Backend{
		"a source of everything":      (*scripted).backend,
		"a source of requested names": (*scripted).byInterest,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newScripted()
				c := open(t, backend(source), client.Options{ForgetAfter: doubt})
				w := c.Watch(greeterKey)
				defer w.Stop()
				source.all(greeter("10.0.0.1", "10.0.0.2"))
				next(t, w)
				expect := func(when, want string) {
					t.Helper()
					synctest.Wait()
					if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != want {
						t.Errorf("%s: %s, %v; want %s", when, hosts(s), err, want)
					}
				}
				source.away(errors.New("connection refused"))
				for range 3 {
					time.Sleep(time.Minute)
					source.all()
					time.Sleep(doubt / 3)
					source.away(errors.New("connection refused"))
					time.Sleep(doubt)
					expect("away again", "[10.0.0.1 10.0.0.2]")
				}
				source.all(greeter("10.0.0.2"))
				time.Sleep(doubt - time.Second)
				expect("back for less than the period", "[10.0.0.1 10.0.0.2]")
				time.Sleep(time.Second)
				expect("back for the doubt", "[10.0.0.2]")
			})
		})
	}
}

func TestDoubt_EndsThoughTheRegistryFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const doubt, current = 15 * time.Second, 10 * time.Second
		source := newScripted()
		c := open(t, source.backend(), client.Options{ForgetAfter: doubt})
		source.all(greeter("10.0.0.1", "10.0.0.2"))
		for n := 0; ; n++ {
			s, err := c.Resolve(t.Context(), greeterKey)
			if after := time.Duration(n) * current; hosts(s) == "[10.0.0.2]" {
				if after < doubt {
					t.Errorf("given up after %s", after)
				}
				return
			} else if err != nil || after > 5*doubt {
				t.Fatalf("the registry was current for %s without an endpoint that left: %s, %v", after, hosts(s), err)
			}
			source.away(errors.New("connection reset"))
			time.Sleep(time.Second)
			source.all(greeter("10.0.0.2"))
			time.Sleep(current)
		}
	})
}
