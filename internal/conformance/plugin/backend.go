package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// World is a registry for Backends. All functions except Member may be nil.
type World struct {
	// Member returns the client of a further process.
	Member func(t testing.TB, identity string, o client.Options) *client.Client

	// Runs sets the ports of 127.0.0.1 at which the instances of an application run, as
	// Kubernetes reports them to a mesh.
	Runs func(t testing.TB, application string, ports ...int)

	Break func(t testing.TB) // makes the registry unreachable
	Heal  func(t testing.TB) // ends the outage; instances may have to be published again

	// Identities is set where each live process must have an identity of its own.
	Identities bool
}

// Backends tests a client of a registry. An instance is found under each of its names until it is
// withdrawn. A name without providers is empty and not an error. An outage keeps the known
// instances.
func Backends(t *testing.T, w World) {
	t.Helper()
	x := &backends{World: w}
	consumer := x.member(t, "consumer")
	for _, c := range []struct {
		name string
		try  func(testing.TB, *client.Client)
	}{
		{"an instance is found under each of its interfaces until it is withdrawn", x.provided},
		{"interfaces that are registered one by one accumulate", x.addUp},
		{"a name without providers is empty, and not an error", x.empty},
		{"instances disappear with their process", x.closed},
		{"two live processes of one identity get an error, and both stay", x.duplicates},
		{"an outage keeps known instances, which are current after it", x.outage},
	} {
		t.Run(c.name, func(t *testing.T) { c.try(t, consumer) })
	}
}

type backends struct {
	World
	ports int
}

// port returns a port that no other instance of the suite uses. Nothing listens on it.
func (x *backends) port() int {
	x.ports++
	return 20000 + x.ports
}

func (x *backends) member(t testing.TB, identity string) *client.Client {
	t.Helper()
	c := x.Member(t, identity, client.Options{DrainDelay: time.Millisecond})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// instance returns an instance with its own port that provides interfaces.
func (x *backends) instance(t testing.TB, application string, interfaces ...string) client.Instance {
	t.Helper()
	i := client.Instance{Application: application, Host: "127.0.0.1", Port: uint16(x.port()), Protocol: "grpc"} //nolint:gosec // small
	for _, name := range interfaces {
		i.Interfaces = append(i.Interfaces, client.Interface{Name: name})
	}
	x.runs(t, application, int(i.Port))
	return i
}

func (x *backends) runs(t testing.TB, application string, ports ...int) {
	t.Helper()
	if x.Runs != nil {
		x.Runs(t, application, ports...)
	}
}

// patience bounds a failing test on a busy machine.
const patience = 2 * time.Minute

// sees waits until the current answer for a name is exactly these instances.
func sees(t testing.TB, c *client.Client, q client.Query, want ...client.Instance) {
	t.Helper()
	addresses := make([]string, 0, len(want))
	for _, i := range want {
		addresses = append(addresses, i.Address())
	}
	slices.Sort(addresses)
	until(t, c, q, fmt.Sprintf("%v", addresses), func(s client.Snapshot) bool {
		return s.Err == nil && slices.Equal(found(s), addresses)
	})
}

func until(t testing.TB, c *client.Client, q client.Query, what string, enough func(client.Snapshot) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := c.Watch(q)
	defer w.Stop()
	var last client.Snapshot
	for {
		s, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%s: %v; found %v, %v before; want %s", q, err, found(last), last.Err, what)
		}
		if enough(s) {
			return
		}
		last = s
	}
}

func found(s client.Snapshot) []string {
	all := make([]string, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		all = append(all, e.Address())
	}
	slices.Sort(all)
	return all
}

func interfaceNamed(name string) client.Query { return client.ByInterface(name, "", "") }

func (x *backends) provided(t testing.TB, consumer *client.Client) {
	provider := x.member(t, "provided")
	one := x.instance(t, "provided", "api.One", "api.Two")
	if err := provider.Register(one); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api.One", "api.Two"} {
		sees(t, consumer, interfaceNamed(name), one)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := provider.WaitVisible(ctx, one); err != nil {
		t.Errorf("another process sees it, but not its own process: %v", err)
	}
	if err := provider.Deregister(ctx, one); err != nil {
		t.Errorf("withdrawn: %v", err)
	}
	for _, name := range []string{"api.One", "api.Two"} {
		sees(t, consumer, interfaceNamed(name))
	}
}

func (x *backends) addUp(t testing.TB, consumer *client.Client) {
	provider := x.member(t, "adds")
	both := x.instance(t, "adds", "api.First", "api.Second")
	for _, i := range both.Interfaces {
		one := both
		one.Interfaces = []client.Interface{i}
		if err := provider.Register(one); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range both.Interfaces {
		sees(t, consumer, interfaceNamed(i.Name), both)
	}
}

func (*backends) empty(t testing.TB, consumer *client.Client) {
	sees(t, consumer, interfaceNamed("api.Nobody"))
}

func (x *backends) closed(t testing.TB, consumer *client.Client) {
	provider := x.member(t, "closed")
	one := x.instance(t, "closed", "api.Closed")
	if err := provider.Register(one); err != nil {
		t.Fatal(err)
	}
	sees(t, consumer, interfaceNamed("api.Closed"), one)
	if err := provider.Close(); err != nil {
		t.Error(err)
	}
	x.runs(t, "closed") // nowhere: the pod ends with the process, and a mesh shows pods
	sees(t, consumer, interfaceNamed("api.Closed"))
}

func (x *backends) duplicates(t testing.TB, consumer *client.Client) {
	if !x.Identities {
		return
	}
	one, two := x.member(t, "duplicate"), x.member(t, "duplicate")
	first, second := x.instance(t, "duplicate", "api.Duplicate"), x.instance(t, "duplicate", "api.Duplicate")
	if err := one.Register(first); err != nil {
		t.Fatal(err)
	}
	sees(t, consumer, interfaceNamed("api.Duplicate"), first)
	if err := two.Register(second); err != nil {
		t.Fatal(err)
	}
	sees(t, consumer, interfaceNamed("api.Duplicate"), first, second)
	deadline := time.Now().Add(patience)
	for !errors.Is(two.Status().Problem(), client.ErrConflict) {
		if time.Now().After(deadline) {
			t.Fatalf("the second process reports %v; want %v", two.Status().Problem(), client.ErrConflict)
		}
		<-time.NewTimer(50 * time.Millisecond).C
	}
	sees(t, consumer, interfaceNamed("api.Duplicate"), first, second)
}

func (x *backends) outage(t testing.TB, consumer *client.Client) {
	if x.Break == nil {
		return
	}
	provider := x.member(t, "outlasts")
	one := x.instance(t, "outlasts", "api.Outlasts")
	if err := provider.Register(one); err != nil {
		t.Fatal(err)
	}
	known := interfaceNamed("api.Outlasts")
	w := consumer.Watch(known) // a watched answer is kept
	defer w.Stop()
	sees(t, consumer, known, one)
	x.Break(t)
	until(t, consumer, known, "the last answer, and an unreachable registry", func(s client.Snapshot) bool {
		if !slices.Equal(found(s), []string{one.Address()}) {
			t.Fatalf("during the outage it finds %v, %v", found(s), s.Err)
		}
		return errors.Is(s.Err, client.ErrUnreachable)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s, err := consumer.Resolve(ctx, interfaceNamed("api.Later"))
	if err == nil {
		err = s.Err // a registry that had reported everything answers
	}
	if !errors.Is(err, client.ErrUnreachable) && !errors.Is(err, client.ErrPending) {
		t.Errorf("a name that was never requested: %v, %v", found(s), err)
	}
	if s, err := consumer.Resolve(t.Context(), known); err != nil || !slices.Equal(found(s), []string{one.Address()}) {
		t.Errorf("after another name was requested it finds %v, %v", found(s), err)
	}
	x.Heal(t)
	sees(t, consumer, known, one)
	sees(t, consumer, interfaceNamed("api.Later"))
}
