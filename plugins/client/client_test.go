package client_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
)

// scripted is a source that a test controls.
type scripted struct {
	do   chan func(*registry.Table)
	wish *registry.Interest
}

func newScripted() *scripted {
	return &scripted{do: make(chan func(*registry.Table)), wish: registry.NewInterest()}
}

// Run implements registry.Source.
func (s *scripted) Run(ctx context.Context, t *registry.Table) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-s.do:
			names := make(map[string]error)
			for _, name := range s.wish.Names() {
				names[name] = nil
			}
			do(t)
			s.wish.Report(names)
		}
	}
}

func (s *scripted) backend() client.Backend {
	return client.Backend{Kind: "test", Source: s}
}

// byInterest returns a backend whose source reports only requested names.
func (s *scripted) byInterest() client.Backend {
	b := s.backend()
	b.Interest, b.Names = s.wish, func(q client.Query) []string { return []string{q.String()} }
	return b
}

func (s *scripted) all(services ...*registry.Service) {
	s.do <- func(t *registry.Table) { t.Replace(slices.Values(services)) }
	synctest.Wait()
}

func (s *scripted) away(why error) {
	s.do <- func(t *registry.Table) { t.Stale(why) }
	synctest.Wait()
}

// deny makes the source report that a query is denied.
func (s *scripted) deny(q client.Query) {
	s.wish.Names()
	s.wish.Report(map[string]error{q.String(): fmt.Errorf("%w: no right to read", registry.ErrRefused)})
	synctest.Wait()
}

func greeter(hosts ...string) *registry.Service {
	s := &registry.Service{Name: "greeter.shop:20000", Application: "greeter", Interfaces: []registry.Interface{{Name: "api.Greeter"}}, Protocol: "tri"}
	for _, h := range hosts {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: h, Port: 20000})
	}
	return s
}

func open(t *testing.T, b client.Backend, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func hosts(s client.Snapshot) string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, e.Host)
	}
	return fmt.Sprint(all)
}

func next(t *testing.T, w *client.Watch) client.Snapshot {
	t.Helper()
	s, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var greeterKey = client.ByInterface("api.Greeter", "", "")

func TestWatch_CompleteAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		w := c.Watch(greeterKey)
		defer w.Stop()
		source.all(greeter("10.0.0.1", "10.0.0.2"))
		if got := hosts(next(t, w)); got != "[10.0.0.1 10.0.0.2]" {
			t.Error(got)
		}
		source.all(greeter("10.0.0.2"))
		if got := hosts(next(t, w)); got != "[10.0.0.2]" {
			t.Errorf("after a removal: %s", got)
		}
		for _, q := range []client.Query{
			greeterKey, client.ByApplication("greeter"), client.ByHost("greeter.shop:20000"), client.Named("greeter.shop:20000"),
		} {
			late := c.Watch(q)
			if got := hosts(next(t, late)); got != "[10.0.0.2]" {
				t.Errorf("a late watch of %s: %s", q, got)
			}
			late.Stop()
		}
		source.all()
		if got := next(t, w); len(got.Endpoints) != 0 || got.Err != nil {
			t.Errorf("after the last went: %+v", got)
		}
	})
}

func TestClient_RegistryOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		source.all(greeter("10.0.0.1"))
		w := c.Watch(greeterKey)
		defer w.Stop()
		next(t, w)
		source.away(errors.New("connection refused"))
		got := next(t, w)
		if hosts(got) != "[10.0.0.1]" || !errors.Is(got.Err, client.ErrUnreachable) {
			t.Errorf("while it is away: %s, %v", hosts(got), got.Err)
		}
		if s := c.Status(); s.Read || !errors.Is(s.Err, client.ErrUnreachable) {
			t.Errorf("status: %+v", s)
		}
		source.all(greeter("10.0.0.1"))
		if got := next(t, w); got.Err != nil {
			t.Errorf("after it is back: %v", got.Err)
		}
		if s := c.Status(); !s.Read || s.Err != nil {
			t.Errorf("status: %+v", s)
		}
	})
}

// TestClient_EmptyRegistry: a restarted Nacos is empty until each provider has come back.
func TestClient_EmptyRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		source.all(greeter("10.0.0.1", "10.0.0.2", "10.0.0.3"))
		w := c.Watch(greeterKey)
		defer w.Stop()
		next(t, w)
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if s, err := c.Resolve(t.Context(), greeterKey); err != nil || hosts(s) != want {
				t.Errorf("%s: %s, %v, want %s", when, hosts(s), err, want)
			}
		}
		source.away(errors.New("connection refused"))
		source.all()
		expect("back and empty", "[10.0.0.1 10.0.0.2 10.0.0.3]")
		source.away(errors.New("connection refused"))
		source.all(greeter("10.0.0.2"))
		expect("a second outage, and the second provider came back", "[10.0.0.1 10.0.0.2 10.0.0.3]")
		source.all(greeter("10.0.0.2", "10.0.0.3", "10.0.0.4"))
		expect("the third provider too, and a new one", "[10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4]")
		source.all(greeter("10.0.0.3", "10.0.0.4"))
		expect("the second goes", "[10.0.0.1 10.0.0.3 10.0.0.4]")
		<-time.NewTimer(15 * time.Second).C
		expect("the first never came back", "[10.0.0.3 10.0.0.4]")
		if s := next(t, w); hosts(s) != "[10.0.0.3 10.0.0.4]" || s.Err != nil {
			t.Errorf("a watch: %s, %v", hosts(s), s.Err)
		}
		source.all()
		expect("without an outage", "[]")
	})
}

func TestClient_FirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.byInterest(), client.Options{})
		source.all() // without a requested name
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s, err := c.Resolve(ctx, greeterKey); err == nil {
			t.Errorf("an answer before the source reported it: %+v", s)
		}
		go func() {
			<-time.NewTimer(time.Second).C
			source.do <- func(t *registry.Table) { t.Put(greeter("10.0.0.1")) }
		}()
		s, err := c.Resolve(t.Context(), greeterKey)
		if err != nil || hosts(s) != "[10.0.0.1]" {
			t.Errorf("%s, %v", hosts(s), err)
		}
		if !source.wish.Wants(greeterKey.String()) {
			t.Error("a recent query is not kept up to date")
		}
		<-time.NewTimer(2 * time.Minute).C
		synctest.Wait()
		if source.wish.Wants(greeterKey.String()) {
			t.Error("an old query is still kept up to date")
		}
	})
}

func TestWatch_ErrorAtTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		source.away(errors.New("not read yet"))
		go func() {
			time.Sleep(time.Second)
			source.do <- func(t *registry.Table) { t.Stale(errors.New("connection refused")) }
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if s, err := c.Resolve(ctx, greeterKey); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s, %v; want the last reason", hosts(s), err)
		}
	})
}

func TestStateFile_Start(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state.json")
		source := newScripted()
		before, err := client.New(source.backend(), client.Options{StateFile: file})
		if err != nil {
			t.Fatal(err)
		}
		source.all(greeter("10.0.0.1"))
		if _, err := before.Resolve(t.Context(), greeterKey); err != nil {
			t.Fatal(err)
		}
		_ = before.Close()

		source = newScripted()
		c := open(t, source.backend(), client.Options{StateFile: file})
		source.away(errors.New("connection refused"))
		w := c.Watch(greeterKey)
		defer w.Stop()
		if s := next(t, w); hosts(s) != "[10.0.0.1]" || !errors.Is(s.Err, client.ErrUnreachable) || s.Since.IsZero() {
			t.Errorf("from the file: %s, %v, %s", hosts(s), s.Err, s.Since)
		}
		source.all(greeter("10.0.0.2"))
		if s := next(t, w); hosts(s) != "[10.0.0.1 10.0.0.2]" || s.Err != nil || s.Since.IsZero() {
			t.Errorf("once the registry is there: %s, %v, %s; want both, one of them not confirmed", hosts(s), s.Err, s.Since)
		}
		if s := next(t, w); hosts(s) != "[10.0.0.2]" || s.Err != nil || !s.Since.IsZero() {
			t.Errorf("after the doubt: %s, %v, %s; want what the registry reports", hosts(s), s.Err, s.Since)
		}
	})
}

func TestClient_StopAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScripted().byInterest(), client.Options{}) // the source never answers
		w := c.Watch(greeterKey)
		ended := make(chan error)
		go func() { _, err := w.Next(context.Background()); ended <- err }()
		synctest.Wait()
		w.Stop()
		w.Stop()
		if err := <-ended; !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
		w = c.Watch(greeterKey)
		go func() { _, err := w.Next(context.Background()); ended <- err }()
		synctest.Wait()
		_ = c.Close()
		if err := <-ended; !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
		if err := c.Status().Problem(); !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestManyWatches starts and stops ten thousand watches at the same time. The bubble fails if one of
// their goroutines remains.
func TestManyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.byInterest(), client.Options{})
		var running sync.WaitGroup
		for n := range 10_000 {
			running.Go(func() {
				q := client.ByInterface(fmt.Sprintf("api.Greeter%d", n%7), "", "")
				w := c.Watch(q)
				defer w.Stop()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := w.Next(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		var all []*registry.Service
		for n := range 7 {
			s := greeter("10.0.0.1")
			s.Name, s.Interfaces = registry.Name(strconv.Itoa(n)), []registry.Interface{{Name: fmt.Sprintf("api.Greeter%d", n)}}
			all = append(all, s)
		}
		source.all(all...)
		running.Wait()
		if names := source.wish.Names(); len(names) > 0 {
			t.Errorf("still desired: %v", names)
		}
	})
}

// broken is a source that panics.
type broken struct{}

// Run implements registry.Source.
func (broken) Run(context.Context, *registry.Table) error { panic("a defect") }

func TestClient_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, client.Backend{Kind: "test", Source: broken{}}, client.Options{})
		synctest.Wait()
		if s := c.Status(); s.Read || s.Err == nil {
			t.Errorf("%+v", s)
		}
		_ = c.Close()
		if s := c.Status(); !errors.Is(s.Err, client.ErrClosed) {
			t.Errorf("once closed: %v", s.Err)
		}
	})
}

// TestClient_EarlierAnswer: for frameworks that keep the first data of an address.
func TestClient_EarlierAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := clientfake.New()
		c := open(t, world.Backend(), client.Options{DrainDelay: time.Millisecond, ForgetAfter: time.Millisecond})
		defer func() { _ = c.Close() }()
		i := client.Instance{Application: "greeter", Host: "10.0.0.1", Port: 80, Protocol: "tri", Weight: client.WeightOf(0.3)}
		if err := c.Register(i); err != nil {
			t.Fatal(err)
		}
		w := c.Watch(client.Named("greeter"))
		defer w.Stop()
		before := next(t, w)
		for len(before.Endpoints) == 0 {
			before = next(t, w)
		}
		e := before.Endpoints[0]
		world.Weigh("10.0.0.1:80", 10)
		after := next(t, w)
		if now, ok := c.Latest(e); !ok || after.Endpoints[0].Weight.Part() != 0.1 || now.Weight.Part() != 0.1 || e.Weight.Part() != 0.3 {
			t.Errorf("known as %v, %t, before %v", now, ok, e)
		}
		if err := c.Deregister(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		gone, ok := c.Latest(e)
		if ok || gone.Weight.Part() != 0.3 {
			t.Errorf("one that is not there any more: %v, %t", gone, ok)
		}
		if gone.Router != nil || e.Router != nil {
			t.Error("routes without a mesh")
		}
	})
}
