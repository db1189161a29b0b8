package dataplane

import (
	"context"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// world is an answer in the state of the world.
type world struct {
	v       *view
	s       *subscription
	request *cache.Request
	answer  *discovery.DiscoveryResponse
}

// GetDiscoveryResponse implements cache.Response. It is called when the answer
// is sent.
func (w *world) GetDiscoveryResponse() (*discovery.DiscoveryResponse, error) {
	if w.answer != nil {
		return w.answer, nil
	}
	defer w.v.lock()()
	w.answer = &discovery.DiscoveryResponse{TypeUrl: w.request.GetTypeUrl(), VersionInfo: "none"}
	if w.s.typed != nil {
		w.answer.VersionInfo = w.s.typed.version()
	}
	send := func(r *stored) {
		w.v.sends(w.s, r)
		w.answer.Resources = append(w.answer.Resources, r.worldFor(w.v.locality))
	}
	if w.s.typed != nil && isWhole(w.s.url) {
		w.answer.Resources = make([]*anypb.Any, 0, w.s.typed.count)
		for r := range w.s.typed.since(0) {
			if w.s.wants(r) && w.v.sees(w.s, r) {
				send(r)
			}
		}
	} else {
		w.v.due(w.s, sink{send, func(string) {}})
	}
	w.v.sent(w.s)
	return w.answer, nil
}

// GetRequest implements cache.Response.
func (w *world) GetRequest() *discovery.DiscoveryRequest { return w.request }

// GetVersion implements cache.Response.
func (w *world) GetVersion() (string, error) { return w.GetResponseVersion(), nil }

// GetResponseVersion implements cache.Response.
func (w *world) GetResponseVersion() string { return w.answer.GetVersionInfo() }

// GetReturnedResources implements cache.Response. The view keeps what was sent.
func (*world) GetReturnedResources() map[string]string { return map[string]string{} }

// GetContext implements cache.Response.
func (*world) GetContext() context.Context { return context.Background() }

// differences is an answer in the incremental form.
type differences struct {
	v       *view
	s       *subscription
	request *cache.DeltaRequest
	answer  *discovery.DeltaDiscoveryResponse
}

// GetDeltaDiscoveryResponse implements cache.DeltaResponse. It is called when
// the answer is sent.
func (d *differences) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	if d.answer != nil {
		return d.answer, nil
	}
	defer d.v.lock()()
	d.answer = &discovery.DeltaDiscoveryResponse{TypeUrl: d.request.GetTypeUrl()}
	if d.s.typed != nil {
		d.answer.SystemVersionInfo = d.s.typed.version()
	}
	d.v.due(d.s, sink{
		send: func(r *stored) {
			d.v.sends(d.s, r)
			d.answer.Resources = append(d.answer.Resources, r.deltaFor(d.v.locality))
		},
		gone: func(name string) { d.answer.RemovedResources = append(d.answer.RemovedResources, name) },
	})
	d.v.sent(d.s)
	return d.answer, nil
}

// GetDeltaRequest implements cache.DeltaResponse.
func (d *differences) GetDeltaRequest() *discovery.DeltaDiscoveryRequest { return d.request }

// GetSystemVersion implements cache.DeltaResponse.
func (d *differences) GetSystemVersion() (string, error) { return d.GetResponseVersion(), nil }

// GetResponseVersion implements cache.DeltaResponse.
func (d *differences) GetResponseVersion() string { return d.answer.GetSystemVersionInfo() }

// GetNextVersionMap implements cache.DeltaResponse.
func (d *differences) GetNextVersionMap() map[string]string { return d.GetReturnedResources() }

// GetReturnedResources implements cache.DeltaResponse. The view keeps what was
// sent.
func (*differences) GetReturnedResources() map[string]string { return map[string]string{} }

// GetContext implements cache.DeltaResponse.
func (*differences) GetContext() context.Context { return context.Background() }
