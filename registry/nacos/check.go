package nacos

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// checkService is the service in which Check publishes for a moment. It has no consumers.
const checkService = "xds-bridge.preflight"

// A Report is the result of Check.
type Report struct {
	Server string        // host:port of the connection
	Groups int           // number of groups of our formats
	Read   error         // why groups cannot be listed, or ErrNoNamespace
	Write  error         // why nothing can be published
	Took   time.Duration // to publish an instance and withdraw it

	// Duplicate is a service in which another process publishes as our owner; empty: none
	// was found.
	Duplicate string

	// Persistent is a service with persistent instances, which accepts none of ours; empty:
	// none was found.
	Persistent string
}

// checkedServices is the number of services in which Check searches for a duplicate process
// and for persistent instances.
const checkedServices = 50

// Check tries what a Target does, while its client runs. It lists the services, and publishes
// and withdraws an instance that is not enabled, in a separate service. It fails if no server
// is reachable.
func (t *Target) Check(ctx context.Context) (Report, error) {
	var r Report
	groups, err := t.Groups(ctx)
	if errors.Is(err, ErrNotConnected) || ctx.Err() != nil {
		return r, err
	}
	r.Server, r.Groups, r.Read = t.client.State().Server, len(groups), err
	if err == nil {
		r.Read = t.client.missing(ctx)
	}
	scope := t.opts.Layouts[0].Scopes()[0]
	k := serviceKey{scope.Namespace, scope.Group, checkService}
	one := metadata.NacosInstance{IP: "127.0.0.1", Port: 1, Weight: 1, Ephemeral: true}
	began := time.Now()
	if r.Write = t.client.publish(ctx, k, batch{one.String()}); r.Write == nil {
		r.Write = t.client.publish(ctx, k, batch{})
	}
	r.Took = time.Since(began)
	for _, g := range groups[:min(len(groups), checkedServices)] {
		stored, err := t.Read(ctx, g)
		if err != nil {
			continue
		}
		if r.Duplicate == "" && t.stale(stored) {
			r.Duplicate = g.Name
		}
		if r.Persistent == "" && slices.ContainsFunc(stored, isPersistent) {
			r.Persistent = g.Name
		}
	}
	return r, nil
}

func isPersistent(h registry.Stored) bool {
	in, err := metadata.ParseNacosInstance(h.Value)
	return err == nil && in.IP != "" && !in.Ephemeral
}
