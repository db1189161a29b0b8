package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// TestServiceKeys_ManyClients reads what many clients publish of a mesh whose
// adsz is several times the limit of one answer, and measures what istiod pays.
func TestServiceKeys_ManyClients(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const clients, services = 100, 300
	m := harness.NewMesh(t)
	var all []harness.Service
	names := make([]string, 0, services)
	for n := range services {
		host := fmt.Sprintf("service-%04d.shop.svc.cluster.local", n)
		all = append(all, harness.Service{Host: host, Port: 20000, Endpoints: []harness.Endpoint{{Address: "10.0.0.1", Port: 20000}}})
		names = append(names, "outbound|20000||"+host)
	}
	m.ApplyTogether(t, "many", all...)
	istiod := harness.StartIstiod(t, m)
	for n := range clients {
		watchEverything(t, istiod.GRPC, n, names)
	}
	var asked, largest atomic.Int64
	o := debug.Options{
		Replicas: debug.Static(istiod.HTTP), HTTP: &debug.HTTPOptions{}, MaxBytes: 256 << 10,
		Observe: func(o debug.Observation) {
			if o.Query == "client" {
				asked.Add(1)
			}
			largest.Store(max(largest.Load(), o.Bytes))
		},
	}
	r, err := debug.New(o)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "every client is connected", func() error {
		shown, err := istiod.PublishedKeys(t)
		if err == nil && len(shown) < clients {
			err = fmt.Errorf("%d of %d", len(shown), clients)
		}
		return err
	})
	before, began := istiod.Process().CPU(t), time.Now()
	var keys atomic.Int64
	background(t, func(ctx context.Context) error {
		return r.Run(ctx, func(s debug.Snapshot) {
			if s.Complete && s.Err == nil && s.Unread == nil {
				keys.Store(int64(s.Mapping.Len()))
			}
		})
	})
	harness.Eventually(t, 2*time.Minute, "every key is read", func() error {
		if got := keys.Load(); got != clients {
			return fmt.Errorf("%d of %d", got, clients)
		}
		return nil
	})
	cpu, took := istiod.Process().CPU(t)-before, time.Since(began)
	t.Logf("%d clients of %d services: %d questions, the largest answer %d KiB, istiod's CPU %v in %v (%d %%)",
		clients, services, asked.Load(), largest.Load()>>10, cpu, took, 100*cpu/took)
	if cpu > took/2 {
		t.Errorf("istiod worked %v of %v", cpu, took)
	}
	if asked.Load() != clients {
		t.Errorf("%d questions for %d clients", asked.Load(), clients)
	}
}

// watchEverything is a client that publishes a key and watches all services.
func watchEverything(t *testing.T, istiod string, n int, names []string) {
	t.Helper()
	key := fmt.Sprintf(`{"providers:api.K%d::":%q}`, n, strings.TrimPrefix(names[n], "outbound|20000||")+":20000")
	node, err := ads.Identity{
		Type: "sidecar", IP: "10.1.0.1", Name: fmt.Sprintf("app-%03d", n), Namespace: "shop", Labels: map[string]any{"DUBBO_GO": key},
	}.Node()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ads.New(ads.Options{Address: istiod, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	reading := mesh.NewDecoder(nil, mesh.AcceptMutualTLS)
	notified := make(chan struct{}, 1)
	endpoints := ads.Subscribe(c, ads.Kind[*mesh.Assignment]{URL: mesh.EndpointType, Decode: reading.DecodeAssignment},
		func(ads.Event[*mesh.Assignment]) {
			select {
			case notified <- struct{}{}:
			default:
			}
		})
	endpoints.Watch(names...)
	background(t, c.Run)
	harness.Eventually(t, time.Minute, "a client is served", func() error {
		select {
		case <-notified:
			return nil
		default:
			return errors.New("nothing was reported")
		}
	})
}
