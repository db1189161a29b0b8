package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
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
	stream, target := m.Stream("mesh"), m.Target("zk", "")
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
		"the running build":                  `xdsbridge_build_info{go_version="`,
		"streams":                            `xdsbridge_xds_streams_total{registry="mesh"} 2`,
		"streams lost":                       `xdsbridge_sessions_lost_total{registry="mesh"} 1`,
		"sessions lost":                      `xdsbridge_sessions_lost_total{registry="zk"} 1`,
		"responses by type":                  `xdsbridge_xds_responses_total{registry="mesh",type="Cluster"} 2`,
		"types of others are one":            `xdsbridge_xds_responses_total{registry="mesh",type="other"} 1`,
		"NACKs by type":                      `xdsbridge_xds_nacks_total{registry="mesh",type="Cluster"} 1`,
		"bytes":                              `xdsbridge_rpc_bytes_total{method="stream",registry="mesh"} 101`,
		"resources":                          `xdsbridge_events_received_total{registry="mesh"} 4`,
		"why a stream could not be opened":   `xdsbridge_rpc_errors_total{code="unavailable",listen="",method="stream",registry="mesh"} 1`,
		"readings of the mapping":            `xdsbridge_rpc_duration_seconds_count{listen="",method="debug_adsz",registry="mesh"} 2`,
		"bytes of the mapping":               `xdsbridge_rpc_bytes_total{method="debug_adsz",registry="mesh"} 50`,
		"why the mapping could not be read":  `xdsbridge_rpc_errors_total{code="not_the_debug_API",listen="",method="debug_adsz",registry="mesh"} 1`,
		"entries created":                    `xdsbridge_changes_applied_total{bridge="b",listen="",op="create",registry="zk"} 10`,
		"entries deleted":                    `xdsbridge_changes_applied_total{bridge="b",listen="",op="delete",registry="zk"} 2`,
		"writes that failed":                 `xdsbridge_changes_failed_total{listen="",registry="zk"} 2`,
		"a conflict is an answer of its own": `xdsbridge_rpc_errors_total{code="conflict",listen="",method="write",registry="zk"} 1`,
		"a refusal":                          `xdsbridge_rpc_errors_total{code="refused",listen="",method="write",registry="zk"} 1`,
		"a time-out":                         `xdsbridge_rpc_errors_total{code="timeout",listen="",method="read",registry="zk"} 1`,
		"write latency":                      `xdsbridge_rpc_duration_seconds_count{listen="",method="write",registry="zk"} 2`,
		"propagation":                        `xdsbridge_propagation_duration_seconds_bucket{bridge="b",le="0.005"} 1`,
		"reasons of withheld writes":         `xdsbridge_changes_withheld_total{bridge="b",listen="",reason="conflict",registry="zk"} 1`,
		"debounce":                           `xdsbridge_events_coalesced_total{listen="",registry="zk"} 1`,
		"drift":                              `xdsbridge_drift_found_total{listen="",registry="zk"} 1`,
		"retries":                            `xdsbridge_retries_total{listen="",registry="zk"} 1`,
		"holds that began":                   `xdsbridge_guard_holds_total{bridge="b",listen="",registry="zk"} 1`,
		"limits":                             `xdsbridge_limit_usage_ratio{limit="znode_children_bytes",registry="zk"} 0.5`,
		"a complete source":                  `xdsbridge_source_synced{registry="mesh"} 1`,
		"a stale source":                     `xdsbridge_source_stale{registry="mesh"} 1`,
		"services of a source":               `xdsbridge_services{listen="",registry="mesh",role="source"} 7`,
		"instances of a source":              `xdsbridge_endpoints{health="healthy",listen="",registry="mesh",role="source"} 9`,
		"entries of the owner":               `xdsbridge_endpoints{health="",listen="",registry="zk",role="owned"} 11`,
		"entries of others":                  `xdsbridge_endpoints{health="",listen="",registry="zk",role="foreign"} 3`,
		"inputs left out":                    `xdsbridge_invalid_inputs{registry="mesh"} 1`,
		"services that cannot be written":    `xdsbridge_unwritable_services{listen="",registry="zk"} 1`,
		"services by reason":                 `xdsbridge_service_reasons{bridge="b",listen="",reason="synced",registry="zk"} 2`,
		"keys of the mapping":                `xdsbridge_mapping_keys{registry="mesh"} 5`,
		"age of the mapping":                 `xdsbridge_mapping_age_seconds{registry="mesh"} 60`,
		"queue depth":                        `xdsbridge_reconcile_queue_depth{listen="",registry="zk"} 4`,
		"true lag":                           `xdsbridge_oldest_unsynced_change_seconds{listen="",registry="zk"} 2`,
		"holds":                              `xdsbridge_guard_holds{listen="",registry="zk"} 1`,
		"who it is":                          `xdsbridge_info{identity="",owner="shop",version="1.2"} 1`,
		"denied entries":                     `xdsbridge_guard_denied_entries{listen="",registry="zk"} 5`,
		"age of the oldest denial":           `xdsbridge_guard_denied_age_seconds{listen="",registry="zk"} 3600`,
		"age of the oldest hold":             `xdsbridge_guard_hold_age_seconds{listen="",registry="zk"} 30`,
		"conflicts":                          `xdsbridge_conflicts{listen="",registry="zk"} 1`,
		"logins at Nacos":                    `xdsbridge_logins_total{registry="nacos",result="ok"} 1`,
		"logins that were refused":           `xdsbridge_logins_total{registry="nacos",result="denied"} 1`,
		"connections to Nacos lost":          `xdsbridge_sessions_lost_total{registry="nacos"} 1`,
		"why Nacos was unreachable":          `xdsbridge_rpc_errors_total{code="not_ready",listen="",method="connect",registry="nacos"} 1`,
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
	for _, label := range unlisted(text, m.Definitions()) {
		t.Errorf("the reference does not list %s", label)
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
		Targets: []admin.TargetOverview{{Registry: "zk", Kind: "zookeeper", Status: bridge.Status{
			Target: "zk", Owned: 11, Foreign: 3, Queue: 4, OldestDue: 2 * time.Second,
			Bridges: []bridge.BridgeStatus{{Name: "b", Reasons: map[bridge.Reason]int{bridge.ReasonSynced: 2, bridge.ReasonUnwritable: 1}}},
			Counts:  bridge.Counts{Services: 3, Holds: 1, HeldSince: now.Add(-30 * time.Second), Conflicts: 1, Denied: 5, DeniedSince: now.Add(-time.Hour)},
		}}},
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
	text := reference(definitions())
	const path = "../../docs/reference/metrics.md"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a document for all to read
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil || string(have) != text {
		t.Errorf("%s is stale (%v): run make golden", path, err)
	}
}

func definitions() []metrics.Definition {
	m := metrics.New(metrics.Build{})
	m.Watch(func() admin.Overview { return admin.Overview{} })
	return m.Definitions()
}

const referenceHead = "# Metrics\n\n" +
	"For operators who build dashboards and alerts. Generated from internal/metrics by `make golden`; do not edit. " +
	"The alerts are in [deploy/alerts.yaml](../../deploy/alerts.yaml), and [the runbook](../runbook.md) explains them.\n\n" +
	"The queries combine replicas: they use `max` or `sum` over the label `instance` that Prometheus adds. " +
	"The collectors of the Go runtime (`go_…`) and of the process (`process_…`) are enabled.\n\n" +
	"No label contains the name of a service, an address of an endpoint or the text of an error. These labels have values of your configuration:\n\n" +
	"| label | value |\n|---|---|\n" +
	"| `registry` | the name of a registry |\n" +
	"| `listen` | the `listen` address of a bridge into a mesh; empty for sources and for other targets |\n" +
	"| `bridge` | the name of a bridge |\n" +
	"| `owner`, `identity` | the owner, and the identity of the replica |\n" +
	"| `version`, `revision`, `go_version` | the version of xds-bridge, its commit, and the version of Go |\n"

// reference returns the page of all metrics.
func reference(definitions []metrics.Definition) string {
	var text strings.Builder
	text.WriteString(referenceHead)
	for _, d := range definitions {
		fmt.Fprintf(&text, "\n## `%s`\n\n%s. %s\n\n", d.Name, strings.ToUpper(d.Type[:1])+d.Type[1:], d.Help)
		labels := make([]string, len(d.Labels))
		for i, l := range d.Labels {
			labels[i] = "`" + l + "`"
			if values := d.Values[l]; len(values) > 0 {
				labels[i] += " (" + strings.Join(values, ", ") + ")"
			}
		}
		if len(labels) > 0 {
			fmt.Fprintf(&text, "Labels: %s.\n\n", strings.Join(labels, ", "))
		}
		fmt.Fprintf(&text, "%s\n\n```promql\n%s\n```\n", d.Query.Question, d.Query.PromQL)
	}
	return text.String()
}

// TestDefinitions: the labels are bounded, and the query of each metric uses that metric, and
// only labels and values that metrics have.
func TestDefinitions(t *testing.T) {
	labels, values, names := []string{"instance", "job", "le"}, make(map[string][]string), make(map[string]bool)
	for _, d := range definitions() {
		names[d.Name] = true
		labels = append(labels, d.Labels...)
		for _, l := range d.Labels {
			values[l] = append(values[l], d.Values[l]...)
			if slices.Contains([]string{"service", "instance", "host", "error", "id"}, l) {
				t.Errorf("%s has the unbounded label %s", d.Name, l)
			}
		}
	}
	name, grouping := regexp.MustCompile(metrics.Prefix+`[a-z_]+`), regexp.MustCompile(`(?:by|on|group_left) \(([^)]*)\)`)
	matcher := regexp.MustCompile(`(\w+)[!=]~?"([^"]*)"`)
	for _, d := range definitions() {
		query := d.Query.PromQL
		if d.Query.Question == "" || !strings.Contains(query, d.Name) || strings.Count(query, "(") != strings.Count(query, ")") {
			t.Errorf("%s has the query %q for %q", d.Name, query, d.Query.Question)
		}
		for _, n := range name.FindAllString(query, -1) {
			if n != d.Name && !names[n] && (n != d.Name+"_bucket" || d.Type != "histogram") {
				t.Errorf("%s: the query uses the unknown metric %s", d.Name, n)
			}
		}
		for _, group := range grouping.FindAllStringSubmatch(query, -1) {
			for l := range strings.SplitSeq(group[1], ", ") {
				if !slices.Contains(labels, l) {
					t.Errorf("%s: the query groups by the unknown label %s", d.Name, l)
				}
			}
		}
		for _, m := range matcher.FindAllStringSubmatch(query, -1) {
			for v := range strings.SplitSeq(m[2], "|") {
				if !slices.Contains(values[m[1]], v) {
					t.Errorf("%s: the query selects %s=%s, which no metric has", d.Name, m[1], v)
				}
			}
		}
	}
}

// unlisted returns the labels of a scrape whose values are not among those of their metric.
func unlisted(text string, definitions []metrics.Definition) (found []string) {
	series, pair := regexp.MustCompile(`(?m)^(\w+)\{([^}]*)\} `), regexp.MustCompile(`(\w+)="([^"]*)"`)
	for _, s := range series.FindAllStringSubmatch(text, -1) {
		i := slices.IndexFunc(definitions, func(d metrics.Definition) bool {
			return s[1] == d.Name || d.Type == "histogram" && strings.HasPrefix(s[1], d.Name+"_")
		})
		if i < 0 {
			continue // of the Go runtime
		}
		for _, m := range pair.FindAllStringSubmatch(s[2], -1) {
			if values := definitions[i].Values[m[1]]; m[2] != "" && values != nil && !slices.Contains(values, m[2]) {
				found = append(found, s[1]+": "+m[0])
			}
		}
	}
	return found
}

// TestMetrics_Connections: every kind of registry is up or not in each direction, and of a
// mesh each address at which it is served.
func TestMetrics_Connections(t *testing.T) {
	m := metrics.New(metrics.Build{})
	heard := time.Unix(1_700_000_000, 0)
	m.Watch(func() admin.Overview {
		return admin.Overview{
			Sources: []admin.SourceOverview{
				{Name: "mesh", Kind: "mesh", Connection: admin.Connection{Up: true, LastContact: heard}},
				{Name: "zk", Kind: "zookeeper", Connection: admin.Connection{LastContact: heard, Reconnects: 3}},
				{Name: "nacos", Kind: "nacos", Connection: admin.Connection{Up: true, Reconnects: 1}},
				{Name: "k8s", Kind: "kubernetes"},
			},
			Targets: []admin.TargetOverview{
				{Registry: "zk", Kind: "zookeeper", Connection: admin.Connection{Up: true}, Status: bridge.Status{Target: "zk"}},
				{Registry: "mesh", Listen: ":15031", Kind: "mesh", Status: bridge.Status{Target: "mesh (:15031)"}},
				{Registry: "mesh", Listen: ":15032", Kind: "mesh", Connection: admin.Connection{Up: true}, Status: bridge.Status{Target: "mesh (:15032)"}},
			},
			Conditions: []admin.Condition{{Direction: admin.OfTarget, Registry: "mesh (:15031)", Name: admin.NoReader}},
		}
	})
	text := scrape(t, m)
	for _, line := range []string{
		`registry_up{direction="source",kind="mesh",listen="",registry="mesh"} 1`,
		`registry_up{direction="source",kind="zookeeper",listen="",registry="zk"} 0`,
		`registry_up{direction="source",kind="nacos",listen="",registry="nacos"} 1`,
		`registry_up{direction="source",kind="kubernetes",listen="",registry="k8s"} 0`,
		`registry_up{direction="target",kind="zookeeper",listen="",registry="zk"} 1`,
		`registry_up{direction="target",kind="mesh",listen=":15031",registry="mesh"} 0`,
		`registry_up{direction="target",kind="mesh",listen=":15032",registry="mesh"} 1`,
		`registry_last_contact_timestamp_seconds{direction="source",kind="zookeeper",listen="",registry="zk"} 1.7e+09`,
		`registry_reconnects_total{direction="source",kind="zookeeper",listen="",registry="zk"} 3`,
		`registry_reconnects_total{direction="source",kind="nacos",listen="",registry="nacos"} 1`,
		`condition{condition="no-reader",direction="target",listen=":15031",registry="mesh"} 1`,
		`condition{condition="no-reader",direction="target",listen=":15032",registry="mesh"} 0`,
		`guard_holds{listen=":15032",registry="mesh"} 0`,
	} {
		if !strings.Contains(text, "\nxdsbridge_"+line+"\n") {
			t.Errorf("no %s in:\n%s", line, grep(text, line[:strings.IndexByte(line, '{')]))
		}
	}
	for _, label := range unlisted(text, m.Definitions()) {
		t.Errorf("the reference does not list %s", label)
	}
	if strings.Contains(text, `contact_timestamp_seconds{direction="source",kind="kubernetes"`) {
		t.Error("a registry that was never connected has answered")
	}
}

// TestMetrics_Forget: what is no longer configured is no longer shown, and nothing else is
// forgotten with it.
func TestMetrics_Forget(t *testing.T) {
	const stream, first, second, other = `streams_total{registry="mesh"}`, `drift_found_total{listen=":15031",registry="mesh"}`,
		`drift_found_total{listen=":15032",registry="mesh"}`, `drift_found_total{listen="",registry="zk"}`
	for name, tt := range map[string]struct {
		forget func(*metrics.Metrics)
		gone   []string
	}{
		"a registry": {func(m *metrics.Metrics) { m.Forget("mesh") }, []string{stream, first, second}},
		"a source":   {func(m *metrics.Metrics) { m.ForgetSource("mesh") }, []string{stream}},
		"an address": {func(m *metrics.Metrics) { m.ForgetListen("mesh", ":15031") }, []string{first}},
	} {
		t.Run(name, func(t *testing.T) {
			m := metrics.New(metrics.Build{})
			m.Stream("mesh")(ads.Observation{Kind: ads.StreamOpened, Epoch: 1})
			for _, at := range [][2]string{{"mesh", ":15031"}, {"mesh", ":15032"}, {"zk", ""}} {
				m.Target(at[0], at[1])(bridge.Observation{Kind: bridge.ObservedDrift})
			}
			tt.forget(m)
			text := scrape(t, m)
			for _, series := range []string{stream, first, second, other} {
				if gone := !strings.Contains(text, series); gone != slices.Contains(tt.gone, series) {
					t.Errorf("%s: gone is %t", series, gone)
				}
			}
		})
	}
}
