package dataplane_test

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// short returns the last word of a type.
func short(typeURL string) string { return path.Base(strings.ReplaceAll(typeURL, ".", "/")) }

// resourceNames returns the names of resources, by name.
func resourceNames(t *testing.T, all []*anypb.Any) string {
	t.Helper()
	var names []string
	for _, a := range all {
		m, err := a.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, cache.GetResourceName(m))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// differences is a client of the incremental form, which confirms what it gets.
type differences struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
	names  map[string]bool // that a test subscribed to, where it keeps them

	mu       sync.Mutex
	got      []*discovery.DeltaDiscoveryResponse
	nonce    string            // of the last answer
	versions map[string]string // by name
	mute     bool              // nothing is confirmed
	refuse   string
	err      error
}

func (r *rig) differences(n *corev3.Node, first *discovery.DeltaDiscoveryRequest) *differences {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(r.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	d := &differences{t: r.t, stream: stream, cancel: cancel, versions: make(map[string]string)}
	first.Node = n
	d.send(first)
	go d.read()
	synctest.Wait()
	return d
}

func (d *differences) send(r *discovery.DeltaDiscoveryRequest) {
	d.t.Helper()
	if err := d.stream.Send(r); err != nil {
		d.t.Fatal(err)
	}
	synctest.Wait()
}

func (d *differences) read() {
	for {
		res, err := d.stream.Recv()
		d.mu.Lock()
		if d.err = err; err != nil {
			d.mu.Unlock()
			return
		}
		d.got, d.nonce = append(d.got, res), res.GetNonce()
		for _, r := range res.GetResources() {
			d.versions[r.GetName()] = r.GetVersion()
		}
		for _, name := range res.GetRemovedResources() {
			delete(d.versions, name)
		}
		ack := &discovery.DeltaDiscoveryRequest{TypeUrl: res.GetTypeUrl(), ResponseNonce: res.GetNonce()}
		if d.refuse != "" {
			ack.ErrorDetail = &statuspb.Status{Code: 3, Message: d.refuse}
		}
		mute := d.mute
		d.mu.Unlock()
		if !mute {
			_ = d.stream.Send(ack)
		}
	}
}

// has returns the versions of what it has.
func (d *differences) has() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.versions)
}

// take returns what came since the last call.
func (d *differences) take() (answers []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, res := range d.got {
		var names []string
		for _, r := range res.GetResources() {
			names = append(names, r.GetName())
		}
		for _, name := range res.GetRemovedResources() {
			names = append(names, "-"+name)
		}
		slices.Sort(names)
		answers = append(answers, short(res.GetTypeUrl())+": "+strings.Join(names, " "))
	}
	d.got = nil
	return answers
}

// failed returns how the stream ended; nil: it did not.
func (d *differences) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func subscribe(typeURL string, names ...string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names}
}
