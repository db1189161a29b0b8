package nacos

import (
	"context"
	"errors"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// checkService is what Check publishes in for a moment; nobody reads it.
const checkService = "xds-bridge.preflight"

// A Report is what Check found out.
type Report struct {
	Server    string        // host:port of the connection
	Groups    int           // of our formats
	Read      error         // why they cannot be listed, or are shown to nobody: ErrNoNamespace
	Write     error         // why nothing can be published
	Took      time.Duration // to publish an instance and withdraw it
	Duplicate string        // a service in which another process publishes as our owner; empty: none was seen
}

// duplicatesIn is in how many services Check looks for another process.
const duplicatesIn = 50

// Check tries what a Target does while its client runs: it lists what the
// server holds, and publishes an instance that is not enabled in a service of
// its own, which it takes back. The error says why no server can be reached.
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
	r.Duplicate = t.duplicate(ctx, groups)
	return r, nil
}

// duplicate returns a service that holds something of ours which our connection
// does not publish.
func (t *Target) duplicate(ctx context.Context, groups []registry.Group) string {
	for _, g := range groups[:min(len(groups), duplicatesIn)] {
		held, err := t.Read(ctx, g)
		if err != nil {
			continue // it is only looked for
		}
		for _, h := range held {
			if h.Owner == t.opts.Owner && !h.Live && registry.IsEndpoint(h.Key) {
				return g.Name
			}
		}
	}
	return ""
}
