package client_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/clienttest"
)

const elsewhere = "zookeeper://192.0.2.1:2181?identity=one"

func leaseOf(t *testing.T, s *client.Leases, url string) (*client.Lease, *client.Client) {
	t.Helper()
	l, err := s.Lease(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	c, err := l.Client()
	if err != nil {
		t.Fatal(err)
	}
	return l, c
}

// goesOn reports whether a client goes on.
func goesOn(c *client.Client) bool { return !errors.Is(c.Status().Err, client.ErrClosed) }

func TestLeasesOfOneURLShareAClient(t *testing.T) {
	s := new(client.Leases)
	one, first := leaseOf(t, s, elsewhere)
	two, second := leaseOf(t, s, elsewhere)
	_, third := leaseOf(t, s, elsewhere+"-more")
	if first != second || first == third {
		t.Error("clients are shared by URL")
	}
	one.Close()
	one.Close()
	if !goesOn(first) {
		t.Error("the client ends while there is another lease")
	}
	if _, err := one.Client(); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a lease that is closed: %v", err)
	}
	two.Close()
	if goesOn(first) || !goesOn(third) {
		t.Error("a client ends with its last lease, and no other")
	}
	if _, again := leaseOf(t, s, elsewhere); again == first || !goesOn(again) {
		t.Error("the next lease is of a new client")
	}
	s.Close()
	if goesOn(third) {
		t.Error("a client goes on after all were closed")
	}
}

func TestALeaseOfABadURLIsNone(t *testing.T) {
	if _, err := new(client.Leases).Lease("zookeeper://192.0.2.1:2181?color=red", client.Options{}); err == nil {
		t.Error("no error")
	}
}

func TestALeaseEndsWhatItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(clienttest.New().Backend(), client.Options{Settle: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		mine, others := client.LeaseOf(c), client.LeaseOf(c)
		of := func(n int) client.Instance {
			return client.Instance{Application: "greeter", Host: fmt.Sprintf("10.0.0.%d", n), Port: 80, Protocol: "tri"}
		}
		answers := 0
		_, err = mine.Follow(client.Named("greeter"), func(client.Snapshot) { answers++ })
		if err := errors.Join(err, mine.Register(of(1)), others.Register(of(2))); err != nil {
			t.Fatal(err)
		}
		if !mine.Provides(of(1)) || mine.Provides(of(2)) {
			t.Error("a lease provides what it registered")
		}
		synctest.Wait()
		before := answers
		mine.Close()
		if left := c.Status().Instances; len(left) != 1 || left[0].Host != "10.0.0.2" {
			t.Errorf("left %v", left)
		}
		if err := mine.Register(of(3)); !errors.Is(err, client.ErrClosed) {
			t.Errorf("it registers: %v", err)
		}
		synctest.Wait()
		if before == 0 || answers != before {
			t.Errorf("%d answers, %d before it was closed", answers, before)
		}
	})
}

// TestWhatIsDrainedOneByOneWaitsOnce: a process ends in bounded time, whatever it
// provides, and one that goes on has its time again.
func TestWhatIsDrainedOneByOneWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := clienttest.New()
		c, err := client.New(world.Backend(), client.Options{Settle: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		l := client.LeaseOf(c)
		one := client.Instance{Application: "greeter", Host: "10.0.0.1", Port: 80, Protocol: "tri"}
		drains := func() time.Duration {
			began := time.Now()
			for n := range uint16(3) {
				one.Port = 80 + n
				if err := l.Register(one); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err := l.Drain(one, 10*time.Second); err == nil {
					t.Error("nobody confirms, and it is no error")
				}
			}
			return time.Since(began)
		}
		synctest.Wait()
		world.Down(errors.New("away"))
		if took := drains(); took != 10*time.Second {
			t.Errorf("took %s", took)
		}
		time.Sleep(time.Minute)
		if took := drains(); took != 10*time.Second {
			t.Errorf("took %s the next time", took)
		}
	})
}
