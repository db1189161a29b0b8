package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/cloudwego"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/registry"
)

// mirror is a source that reports the entries of a target in memory.
type mirror struct {
	target *memory.Target
	codec  *dubbo.ZooKeeper
	events chan struct{}
}

// Run implements registry.Source.
func (m *mirror) Run(ctx context.Context, t *registry.Table) error {
	for {
		var services []*registry.Service
		groups, err := m.target.Groups(ctx)
		for _, g := range groups {
			held, readErr := m.target.Read(ctx, g)
			err = firstError(err, readErr)
			var entries []registry.Entry
			for _, h := range held {
				entries = append(entries, h.Entry)
			}
			found, _ := m.codec.Decode(entries, nil)
			services = append(services, found...)
		}
		if err != nil {
			t.Stale(err)
		} else {
			t.Replace(func(yield func(*registry.Service) bool) {
				for _, s := range services {
					if !yield(s) {
						return
					}
				}
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.events:
		}
	}
}

const self = "greeter@10.0.0.1:20000"

// ownerOf returns the owner in the mark of an entry.
func ownerOf(e registry.Entry) string {
	value, err := url.QueryUnescape(e.Value)
	if err != nil {
		return ""
	}
	_, mark, ok := strings.Cut(value, metadata.MarkKey+"=")
	if !ok || len(mark) < metadata.OwnerLen {
		return ""
	}
	return mark[:metadata.OwnerLen]
}

// world is a registry in memory, and the backend of one process in it.
func world(t *testing.T) (*memory.Target, Backend) {
	t.Helper()
	codec, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark(self, self)})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan struct{}, 1)
	target := memory.New(memory.Options{Mark: ownerOf, Watch: func(memory.Event) {
		select {
		case events <- struct{}{}:
		default:
		}
	}})
	publisher := newTargetPublisher(target, codec, byKeys, metadata.NewMark(self, self).Owner, slog.New(slog.DiscardHandler))
	return target, Backend{Kind: "memory", Source: &mirror{target, codec, events}, Publisher: publisher, WatchWith: publisher.watchWith}
}

func start(t *testing.T, b Backend) *Client {
	t.Helper()
	c, err := New(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var greeter = Instance{
	Application: "greeter", Interfaces: []Interface{{Name: "api.Greeter"}, {Name: "api.Farewell", Version: "1.0.0"}},
	Host: "10.0.0.1", Port: 20000, Protocol: "tri",
}

func TestRegister_Lifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		c := start(t, b)
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitVisible(t.Context(), greeter); err != nil {
			t.Fatal(err)
		}
		for _, q := range []Query{ByInterface("api.Greeter", "", ""), ByInterface("api.Farewell", "1.0.0", "")} {
			s, err := c.Resolve(t.Context(), q)
			if err != nil || len(s.Endpoints) != 1 || s.Endpoints[0].Address() != "10.0.0.1:20000" || s.Endpoints[0].Protocol != "tri" {
				t.Errorf("%s: %+v, %v", q, s, err)
			}
		}
		if err := c.Deregister(t.Context(), greeter); err != nil {
			t.Fatal(err)
		}
		if n := entries(t, target); n != 0 {
			t.Errorf("%d entries after it was withdrawn", n)
		}
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitVisible(t.Context(), greeter); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if n := entries(t, target); n != 0 {
			t.Errorf("%d entries after Close", n)
		}
	})
}

// TestDrain_Delay: others learn of a removal a little later than this process.
func TestDrain_Delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := world(t)
		c, err := New(b, Options{DrainDelay: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		for _, within := range []time.Duration{time.Minute, time.Second} {
			if err := c.Register(greeter); err != nil {
				t.Fatal(err)
			}
			if err := c.WaitVisible(t.Context(), greeter); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			began := time.Now()
			err := c.Deregister(ctx, greeter)
			cancel()
			if want := min(within, 3*time.Second); time.Since(began) != want || (err != nil) != (within < 3*time.Second) {
				t.Errorf("returned after %s with %v, want %s", time.Since(began), err, want)
			}
		}
	})
}

func TestRegister_LostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		c := start(t, b)
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		target.Expire()
		synctest.Wait()
		<-time.NewTimer(2 * time.Second).C
		synctest.Wait()
		if n := entries(t, target); n != 2 {
			t.Errorf("%d entries two seconds after the session was lost, want 2", n)
		}
	})
}

// TestRegister_Retry: ten minutes without a registry cause few retries and log lines. After them
// everything is published.
func TestRegister_Retry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * time.Minute
		target, b := world(t)
		var down atomic.Bool
		var calls atomic.Int64
		down.Store(true)
		target.Fail(func(memory.Op, registry.Group) error {
			calls.Add(1)
			if down.Load() {
				return errors.New("connection refused")
			}
			return nil
		})
		var log bytes.Buffer
		publisher, ok := b.Publisher.(*targetPublisher)
		if !ok {
			t.Fatalf("%T", b.Publisher)
		}
		publisher.log = slog.New(slog.NewTextHandler(&log, nil))
		c := start(t, b)
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), outage)
		defer cancel()
		if err := c.WaitVisible(ctx, greeter); !errors.Is(err, ErrUnreachable) {
			t.Errorf("while it is down: %v", err)
		}
		// Two groups, each retried at growing intervals, and the retries of the source.
		if most := int64(2*(outage/retryMax+10)) + 1; calls.Load() > most {
			t.Errorf("%d calls in ten minutes, want at most %d", calls.Load(), most)
		}
		down.Store(false)
		<-time.NewTimer(2 * retryMax).C
		synctest.Wait()
		if err := c.WaitVisible(t.Context(), greeter); err != nil {
			t.Error(err)
		}
		if err := c.Status().Problem(); err != nil {
			t.Errorf("status: %v", err)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 4 { // a failure and a recovery of each group
			t.Errorf("%d lines:\n%s", lines, &log)
		}
	})
}

func TestRegister_ForeignEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		foreign, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark("another", "another")})
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := foreign.Encode(new(targetPublisher).provisionsOf([]Instance{greeter})[0].Service)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range theirs {
			if err := target.Write(t.Context(), registry.Change{Group: e.Group, Put: []registry.Write{{New: e}}}); err != nil {
				t.Fatal(err)
			}
		}
		c := start(t, b)
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := c.Status().Problem(); !errors.Is(err, ErrConflict) {
			t.Errorf("status: %v", err)
		}
		_ = c.Close()
		if n := entries(t, target); n != len(theirs) {
			t.Errorf("%d entries of the other one, want %d", n, len(theirs))
		}
	})
}

func TestRegister_Invalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := world(t)
		c := start(t, b)
		for name, i := range map[string]Instance{
			"no address":    {Application: "a", Port: 1},
			"any address":   {Application: "a", Host: "0.0.0.0", Port: 1},
			"no port":       {Application: "a", Host: "10.0.0.1"},
			"no name":       {Host: "10.0.0.1", Port: 1},
			"a hostile key": {Interfaces: []Interface{{Name: "../../x"}}, Host: "10.0.0.1", Port: 1},
		} {
			if err := c.Register(i); err == nil {
				t.Errorf("%s: accepted", name)
			}
		}
		b.Publisher = nil
		if err := start(t, b).Register(greeter); err == nil {
			t.Error("a consumer registered an instance")
		}
	})
}

func entries(t *testing.T, target *memory.Target) int {
	t.Helper()
	groups, err := target.Groups(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range groups {
		held, err := target.Read(context.Background(), g)
		if err != nil {
			t.Fatal(err)
		}
		n += len(held)
	}
	return n
}

// TestRegister_SeveralInterfaces: as dubbo-go does.
func TestRegister_SeveralInterfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := world(t)
		c := start(t, b)
		for _, name := range []string{"api.A", "api.B"} {
			i := greeter
			i.Interfaces = []Interface{{Name: name}}
			if err := c.Register(i); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		for _, name := range []string{"api.A", "api.B"} {
			if s, err := c.Resolve(t.Context(), ByInterface(name, "", "")); err != nil || len(s.Endpoints) != 1 {
				t.Errorf("%s: %d endpoints, %v", name, len(s.Endpoints), err)
			}
		}
		a := greeter
		a.Interfaces = []Interface{{Name: "api.A"}}
		if err := c.Deregister(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if s, err := c.Resolve(t.Context(), ByInterface("api.B", "", "")); err != nil || len(s.Endpoints) != 1 {
			t.Errorf("api.B after api.A was withdrawn: %d endpoints, %v", len(s.Endpoints), err)
		}
	})
}

func TestRegister_FreedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		const other = "greeter-of-before"
		codec, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark(other, other)})
		if err != nil {
			t.Fatal(err)
		}
		before := start(t, Backend{Kind: "memory", Publisher: newTargetPublisher(target, codec, byKeys, metadata.NewMark(other, other).Owner, slog.New(slog.DiscardHandler))})
		if err := before.Register(greeter); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(time.Second).C
		c := start(t, b)
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(5 * time.Second).C
		if err := c.Status().Problem(); !errors.Is(err, ErrConflict) || errors.Is(err, ErrUnreachable) {
			t.Errorf("status while another holds it: %v", err)
		}
		_ = before.Close() // its session ends
		began := time.Now()
		<-time.NewTimer(2 * time.Second).C
		n := entries(t, target)
		for n == 0 && time.Since(began) < 5*time.Minute {
			<-time.NewTimer(time.Second).C
			n = entries(t, target)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a live provider was in nobody's list for %s after the address was freed", took)
		}
	})
}

// TestRegister_SlowGroup: a slow group does not delay others.
func TestRegister_SlowGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		target.Fail(func(_ memory.Op, g registry.Group) error {
			if strings.HasSuffix(g.Name, "api.Farewell") || strings.Contains(g.String(), "api.Farewell") {
				<-time.NewTimer(callTimeout).C
				return context.DeadlineExceeded
			}
			return nil
		})
		c := start(t, b)
		i := greeter
		for n := range 8 {
			i.Interfaces = append(slices.Clone(i.Interfaces), Interface{Name: fmt.Sprint("api.Farewell", n)})
		}
		if err := c.Register(i); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(callTimeout + time.Second).C
		synctest.Wait()
		n := 0
		for _, e := range target.Entries() {
			if strings.HasSuffix(e.Group.String(), "api.Greeter") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d entries of the group that does not hang", n)
		}
	})
}

// TestRegister_SlowGroupLater: registering, withdrawing and closing while a call for another group
// hangs.
func TestRegister_SlowGroupLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		b.Source = nil
		c := start(t, b)
		target.Fail(func(_ memory.Op, g registry.Group) error {
			if strings.Contains(g.String(), "api.Slow") {
				<-time.NewTimer(callTimeout).C
				return context.DeadlineExceeded
			}
			return nil
		})
		of := func(name string) Instance {
			i := greeter
			i.Interfaces = []Interface{{Name: name}}
			return i
		}
		began := time.Now()
		for n, step := range []func(Instance) error{
			c.Register, func(i Instance) error { return c.Deregister(t.Context(), i) }, c.Register,
		} {
			if err := firstError(c.Register(of("api.Slow")), step(of("api.Greeter"))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got, want := len(target.Entries()), (n+1)%2; got != want {
				t.Errorf("step %d: %d entries, want %d", n, got, want)
			}
		}
		go func() { _ = c.Close() }()
		synctest.Wait()
		if left := target.Entries(); len(left) > 0 || time.Since(began) > 0 {
			t.Errorf("left after %s: %v", time.Since(began), left)
		}
	})
}

// TestRegister_Omissions: Status has the reason, and the other instances are published.
func TestRegister_Omissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		codec, err := format.Codec[nacosFormat](cloudwego.FormatKitex(), format.Nacos, format.Options{Protocol: "thrift", Mark: metadata.NewMark(self, self)})
		if err != nil {
			t.Fatal(err)
		}
		publisher := newTargetPublisher(target, codec, byName, metadata.NewMark(self, self).Owner, slog.New(slog.DiscardHandler))
		b.Publisher, b.WatchWith = publisher, publisher.watchWith
		c := start(t, b)
		six := Instance{Application: "greeter", Host: "fd00::1", Port: 20000, Protocol: "thrift"}
		four := six
		four.Host = "10.0.0.1"
		if err := firstError(c.Register(six), c.Register(four)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range []error{c.WaitVisible(ctx, six), c.Status().Problem()} {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "greeter@[fd00::1]:20000: "+ErrInvalid.Error()+": ") {
				t.Error(err)
			}
		}
		if n := len(target.Entries()); n != 1 {
			t.Errorf("%d entries, want that of the other instance", n)
		}
	})
}

// TestRegister_ReadJitter: the periodic reads of many processes are spread.
func TestRegister_ReadJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		began, times := time.Now(), make(map[time.Duration]bool)
		for range 20 {
			target, b := world(t)
			b.Source = nil
			c := start(t, b)
			if err := c.Register(greeter); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			target.Fail(func(op memory.Op, _ registry.Group) error {
				mu.Lock()
				defer mu.Unlock()
				if op == memory.OpRead {
					times[time.Since(began)] = true
				}
				return nil
			})
		}
		<-time.NewTimer(refreshInterval).C
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(times) < 10 {
			t.Errorf("20 processes read at %d moments", len(times))
		}
	})
}

// TestDrain_Unconfirmed: without a deadline, successive calls of Deregister wait 10 s in total. A
// registration starts the time again.
func TestDrain_Unconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		c := start(t, b)
		several := make([]Instance, 3)
		for n := range several {
			several[n] = greeter
			several[n].Host = fmt.Sprint("10.0.0.", n+1)
		}
		for range 2 {
			for _, i := range several {
				if err := c.Register(i); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			target.Fail(func(memory.Op, registry.Group) error { return errors.New("connection refused") })
			began := time.Now()
			for _, i := range several {
				if err := c.Deregister(context.Background(), i); !errors.Is(err, ErrUnreachable) {
					t.Error(err)
				}
			}
			if took := time.Since(began); took != 10*time.Second {
				t.Errorf("took %s", took)
			}
			if left := c.Status().Instances; len(left) > 0 {
				t.Errorf("still registered: %v", left)
			}
			target.Fail(nil)
			<-time.NewTimer(time.Second).C
		}
	})
}

// TestRegister_ConsumerConnections: publishing requires a separate connection.
func TestRegister_ConsumerConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := world(t)
		publisher, ok := b.Publisher.(*targetPublisher)
		if !ok {
			t.Fatalf("%T", b.Publisher)
		}
		opened := 0
		publisher.target = nil
		publisher.open = func() (registry.Target, error) {
			opened++
			return target, nil
		}
		c := start(t, b)
		if _, err := c.Resolve(t.Context(), ByApplication("greeter")); err != nil || opened != 0 {
			t.Errorf("a consumer: %v, opened %d times", err, opened)
		}
		if err := c.Register(greeter); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitVisible(t.Context(), greeter); err != nil || opened != 1 {
			t.Errorf("a provider: %v, opened %d times", err, opened)
		}
	})
}

// nacosFormat is a format of Nacos.
type nacosFormat interface {
	metadata.Codec
	GroupOf(namespace, group, service string) (registry.Group, bool)
}
