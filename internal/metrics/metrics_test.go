package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/metrics"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

const (
	cluster  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	nonsense = "type.googleapis.com/some.thing.Nobody.Knows"
)

func TestMetrics(t *testing.T) {
	m := metrics.New(metrics.Build{Version: "v1.2.3", Revision: "abc"})
	m.Watch(overview)
	stream, target := m.Stream("mesh"), m.Target("zk", "zookeeper")
	peer := m.Nacos("nacos")
	for _, o := range []nacos.Observation{
		{Op: nacos.OpLogin, Err: fmt.Errorf("secret detail 5: %w", nacos.ErrDenied)},
		{Op: nacos.OpLogin},
		{Op: nacos.OpConnect, Err: fmt.Errorf("secret detail 6: %w", nacos.ErrNotReady)},
		{Op: nacos.OpConnect},
		{Op: "BatchInstanceRequest", Got: 100, Err: nacos.ErrThrottled},
		{Op: nacos.OpLost, Err: errors.New("secret detail 7")},
		{Op: nacos.OpConnect, Again: true},
	} {
		peer(o)
	}
	for _, o := range []ads.Observation{
		{Kind: ads.ConnectFailed, Err: status.Error(codes.Unavailable, "secret detail 1")},
		{Kind: ads.StreamOpened, Epoch: 1},
		{Kind: ads.RequestSent, Type: cluster},
		{Kind: ads.ResponseReceived, Epoch: 1, Type: cluster, Bytes: 100, Resources: 3},
		{Kind: ads.ResponseReceived, Epoch: 1, Type: nonsense, Bytes: 1, Resources: 1},
		{Kind: ads.Rejected, Epoch: 1, Type: cluster, Err: errors.New("secret detail 2")},
		{Kind: ads.StreamClosed, Epoch: 1, Err: status.Error(codes.Internal, "secret detail 3")},
		{Kind: ads.StreamOpened, Epoch: 2},
		{Kind: ads.ResponseReceived, Epoch: 2, Type: cluster},
		{Kind: ads.StreamClosed, Epoch: 2},
	} {
		stream(o)
	}
	for _, o := range []bridge.Observation{
		{Kind: bridge.ObservedCall, Op: "list", Count: 1, Took: time.Millisecond},
		{Kind: bridge.ObservedCall, Op: "write", Count: 1, Err: fmt.Errorf("secret detail 4: %w", registry.ErrConflict)},
		{Kind: bridge.ObservedCall, Op: "write", Count: 1, Err: fmt.Errorf("too big: %w", registry.ErrRefused)},
		{Kind: bridge.ObservedCall, Op: "read", Count: 1, Err: context.DeadlineExceeded},
		{Kind: bridge.ObservedCall, Op: "read", Count: 1, Err: errors.New("gone")},
		{Kind: bridge.ObservedApplied, Bridge: "b", Op: "create", Count: 10, Latency: 3 * time.Millisecond},
		{Kind: bridge.ObservedApplied, Bridge: "b", Op: "delete", Count: 2},
		{Kind: bridge.ObservedHold, Bridge: "b", Count: 5},
		{Kind: bridge.ObservedConflict, Bridge: "b", Count: 1},
		{Kind: bridge.ObservedUnwritable, Bridge: "b", Count: 1},
		{Kind: bridge.ObservedDrift, Count: 1},
		{Kind: bridge.ObservedCoalesce, Bridge: "b", Count: 1},
		{Kind: bridge.ObservedRetry, Count: 1},
	} {
		target(o)
	}
	mapping := m.Mapping("mesh")
	mapping(debug.Observation{Query: "adsz", Bytes: 50, Duration: time.Millisecond})
	mapping(debug.Observation{Query: "adsz", Err: &debug.Error{Cause: debug.NotAnswer, Where: "secret", Err: errors.New("secret")}})
	m.Sessions("zk")(zookeeper.State{Sessions: 2})
	m.LimitUsage("zk", "znode_children_bytes", 0.5)
	text := scrape(t, m)
	for name, line := range map[string]string{
		"what is running":                    `xdsbridge_build_info{go_version="`,
		"streams":                            `xdsbridge_xds_streams_total{registry="mesh"} 2`,
		"reconnects":                         `xdsbridge_registry_reconnects_total{direction="source",kind="mesh",registry="mesh"} 1`,
		"streams lost":                       `xdsbridge_sessions_lost_total{registry="mesh"} 1`,
		"sessions lost":                      `xdsbridge_sessions_lost_total{registry="zk"} 1`,
		"a registry that is down":            `xdsbridge_registry_up{direction="source",kind="mesh",registry="mesh"} 0`,
		"responses by type":                  `xdsbridge_xds_responses_total{registry="mesh",type="Cluster"} 2`,
		"types of others are one":            `xdsbridge_xds_responses_total{registry="mesh",type="other"} 1`,
		"NACKs by type":                      `xdsbridge_xds_nacks_total{registry="mesh",type="Cluster"} 1`,
		"bytes":                              `xdsbridge_rpc_bytes_total{method="stream",registry="mesh"} 101`,
		"resources":                          `xdsbridge_events_received_total{registry="mesh"} 4`,
		"why a stream could not be opened":   `xdsbridge_rpc_errors_total{code="unavailable",method="stream",registry="mesh"} 1`,
		"readings of the mapping":            `xdsbridge_rpc_duration_seconds_count{method="debug_adsz",registry="mesh"} 2`,
		"bytes of the mapping":               `xdsbridge_rpc_bytes_total{method="debug_adsz",registry="mesh"} 50`,
		"why the mapping could not be read":  `xdsbridge_rpc_errors_total{code="not_the_debug_API",method="debug_adsz",registry="mesh"} 1`,
		"entries created":                    `xdsbridge_changes_applied_total{bridge="b",op="create",registry="zk"} 10`,
		"entries deleted":                    `xdsbridge_changes_applied_total{bridge="b",op="delete",registry="zk"} 2`,
		"writes that failed":                 `xdsbridge_changes_failed_total{registry="zk"} 2`,
		"a conflict is an answer of its own": `xdsbridge_rpc_errors_total{code="conflict",method="write",registry="zk"} 1`,
		"a refusal":                          `xdsbridge_rpc_errors_total{code="refused",method="write",registry="zk"} 1`,
		"a time-out":                         `xdsbridge_rpc_errors_total{code="timeout",method="read",registry="zk"} 1`,
		"a target that is down":              `xdsbridge_registry_up{direction="target",kind="zookeeper",registry="zk"} 0`,
		"write latency":                      `xdsbridge_rpc_duration_seconds_count{method="write",registry="zk"} 2`,
		"propagation":                        `xdsbridge_propagation_duration_seconds_bucket{bridge="b",le="0.005"} 1`,
		"reasons of what is withheld":        `xdsbridge_changes_withheld_total{bridge="b",reason="conflict",registry="zk"} 1`,
		"debounce":                           `xdsbridge_events_coalesced_total{registry="zk"} 1`,
		"drift":                              `xdsbridge_drift_found_total{registry="zk"} 1`,
		"retries":                            `xdsbridge_retries_total{registry="zk"} 1`,
		"holds that began":                   `xdsbridge_guard_holds_total{bridge="b",registry="zk"} 1`,
		"limits":                             `xdsbridge_limit_usage_ratio{limit="znode_children_bytes",registry="zk"} 0.5`,
		"a complete source":                  `xdsbridge_source_synced{registry="mesh"} 1`,
		"a stale source":                     `xdsbridge_source_stale{registry="mesh"} 1`,
		"services of a source":               `xdsbridge_services{registry="mesh",role="source"} 7`,
		"instances of a source":              `xdsbridge_endpoints{health="healthy",registry="mesh",role="source"} 9`,
		"instances of ours":                  `xdsbridge_endpoints{health="",registry="zk",role="owned"} 11`,
		"instances of others":                `xdsbridge_endpoints{health="",registry="zk",role="foreign"} 3`,
		"inputs left out":                    `xdsbridge_invalid_inputs{registry="mesh"} 1`,
		"services that cannot be written":    `xdsbridge_unwritable_services{registry="zk"} 1`,
		"services by reason":                 `xdsbridge_service_reasons{bridge="b",reason="synced",registry="zk"} 2`,
		"keys of the mapping":                `xdsbridge_mapping_keys{registry="mesh"} 5`,
		"age of the mapping":                 `xdsbridge_mapping_age_seconds{registry="mesh"} 60`,
		"queue depth":                        `xdsbridge_reconcile_queue_depth{registry="zk"} 4`,
		"true lag":                           `xdsbridge_oldest_unsynced_change_seconds{registry="zk"} 2`,
		"holds":                              `xdsbridge_guard_holds{registry="zk"} 1`,
		"who it is":                          `xdsbridge_info{identity="",owner="shop",version="1.2"} 1`,
		"denied entries":                     `xdsbridge_guard_denied_entries{registry="zk"} 5`,
		"age of the oldest denial":           `xdsbridge_guard_denied_age_seconds{registry="zk"} 3600`,
		"age of the oldest hold":             `xdsbridge_guard_hold_age_seconds{registry="zk"} 30`,
		"conflicts":                          `xdsbridge_conflicts{registry="zk"} 1`,
		"logins at Nacos":                    `xdsbridge_logins_total{registry="nacos",result="ok"} 1`,
		"logins that were refused":           `xdsbridge_logins_total{registry="nacos",result="denied"} 1`,
		"reconnects to Nacos":                `xdsbridge_registry_reconnects_total{direction="target",kind="nacos",registry="nacos"} 1`,
		"connections to Nacos lost":          `xdsbridge_sessions_lost_total{registry="nacos"} 1`,
		"why Nacos was unreachable":          `xdsbridge_rpc_errors_total{code="not_ready",method="connect",registry="nacos"} 1`,
		"a Nacos that is up":                 `xdsbridge_registry_up{direction="target",kind="nacos",registry="nacos"} 1`,
		"bytes of Nacos":                     `xdsbridge_rpc_bytes_total{method="nacos",registry="nacos"} 100`,
		"the Go runtime":                     `go_goroutines `,
		"the process":                        `process_open_fds `,
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(text, "\n"+line) {
				t.Errorf("no %s in:\n%s", line, grep(text, line[:strings.IndexAny(line, "{ ")]))
			}
		})
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "greeter") {
		t.Error("text of an error or a service is a label")
	}
}

func overview() admin.Overview {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	var health registry.Endpoints
	health[registry.Healthy] = 9
	return admin.Overview{
		Time: now, Owner: "shop", Version: "1.2",
		Sources: []admin.SourceOverview{{
			Name:    "mesh",
			Summary: registry.Summary{Synced: true, Stale: errors.New("istiod is away"), Services: 7, Endpoints: health, Defects: 1},
			Mapping: &admin.Mapping{Keys: 5, LastRead: now.Add(-time.Minute)},
		}},
		Loops: []bridge.Status{{
			Target: "zk", Owned: 11, Foreign: 3, Queue: 4, OldestDue: 2 * time.Second,
			Bridges: []bridge.BridgeStatus{{Name: "b", Reasons: map[bridge.Reason]int{bridge.ReasonSynced: 2, bridge.ReasonUnwritable: 1}}},
			Counts:  bridge.Counts{Services: 3, Holds: 1, HeldSince: now.Add(-30 * time.Second), Conflicts: 1, Denied: 5, DeniedSince: now.Add(-time.Hour)},
		}},
	}
}

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func grep(text, part string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return !strings.Contains(l, part) })
	return strings.Join(lines, "\n")
}

// TestReference keeps docs/reference/metrics.md in sync with the code;
// UPDATE_GOLDEN=1 rewrites it.
func TestReference(t *testing.T) {
	m := metrics.New(metrics.Build{})
	m.Watch(func() admin.Overview { return admin.Overview{} })
	var text strings.Builder
	text.WriteString("# Metrics\n\nGenerated from internal/metrics; rewrite with `make golden`.\n\n" +
		"No label holds the name of a service, an address or the text of an error. " +
		"`registry` is the name of a registry in the configuration, `bridge` the name of a bridge; a mesh that is written is followed by its `listen`, as `mesh:15031`. " +
		"The collectors of the Go runtime (`go_…`) and of the process (`process_…`) are on.\n\n" +
		"| name | type | labels | meaning |\n|---|---|---|---|\n")
	for _, d := range m.Definitions() {
		labels := strings.Join(d.Labels, ", ")
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, labels, d.Help)
		for _, l := range d.Labels {
			if slices.Contains([]string{"service", "instance", "host", "error", "id"}, l) {
				t.Errorf("%s has the unbounded label %s", d.Name, l)
			}
		}
	}
	const path = "../../docs/reference/metrics.md"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil { //nolint:gosec // a document for all to read
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil || string(have) != text.String() {
		t.Errorf("%s is stale (%v): run make golden", path, err)
	}
}

// TestMetrics_UnusedSink shows that a registry that is up stays so when a sink
// for a second connection is made, as a reload does, and is shown by the sink
// of a connection that is open after it was forgotten.
func TestMetrics_UnusedSink(t *testing.T) {
	m := metrics.New(metrics.Build{})
	connected := m.Nacos("nacos")
	connected(nacos.Observation{Op: nacos.OpConnect})
	m.ZooKeeper("zk")(zookeeper.State{Connected: true})
	m.Stream("mesh")(ads.Observation{Kind: ads.ResponseReceived})
	up := func() (n int) {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		for line := range strings.Lines(w.Body.String()) {
			if strings.HasPrefix(line, "xdsbridge_registry_up{") && strings.HasSuffix(line, " 1\n") {
				n++
			}
		}
		return n
	}
	m.Nacos("nacos")
	m.ZooKeeper("zk")
	m.Stream("mesh")
	if n := up(); n != 3 {
		t.Errorf("%d of 3 peers are up", n)
	}
	m.Forget("nacos")
	connected(nacos.Observation{Op: nacos.OpConnect, Again: true})
	if n := up(); n != 3 {
		t.Errorf("%d of 3 peers are up after one was forgotten and is back", n)
	}
}

// TestMetrics_RemovedSource shows that nothing is shown as it was
// when the registry was last read.
func TestMetrics_RemovedSource(t *testing.T) {
	m := metrics.New(metrics.Build{})
	m.Stream("mesh")(ads.Observation{Kind: ads.StreamOpened, Epoch: 1})
	m.Nacos("mesh")(nacos.Observation{Op: nacos.OpConnect})
	m.ForgetSource("mesh")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	text := w.Body.String()
	if strings.Contains(text, `direction="source"`) || strings.Contains(text, "xds_streams_total{") || !strings.Contains(text, `direction="target",kind="nacos",registry="mesh"`) {
		t.Error(text)
	}
}
