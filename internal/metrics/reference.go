package metrics

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/generator"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// Values of labels that no other package defines.
const (
	other          = "other"
	methodStream   = "stream"
	methodNacos    = "nacos"
	methodDebug    = "debug_"
	roleSource     = "source"
	roleClaimed    = "claimed"
	roleOwned      = "owned"
	roleForeign    = "foreign"
	withheldByHold = "hold"
	loginOK        = "ok"
	limitChildren  = "znode_children_bytes" // of one list of children of a ZooKeeper
)

// Codes of calls that failed.
const (
	codeConflict    = "conflict"
	codeRefused     = "refused"
	codeTimeout     = "timeout"
	codeCanceled    = "canceled"
	codeUnreachable = "unreachable"
	codeDenied      = "denied"
	codeThrottled   = "throttled"
	codeNotReady    = "not_ready"
)

func targetMethods() []string { return []string{"list", "read", "write"} }

func entryOperations() []string { return []string{"create", "update", "delete"} }

func debugQueries() []string { return []string{"adsz", "connections", "client"} }

func limits() []string { return []string{limitChildren} }

func resourceTypes() []string {
	return []string{"Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration", "Secret"}
}

// callCodes are the values of errorCode and nacosCode.
func callCodes() []string {
	return []string{codeConflict, codeRefused, codeTimeout, codeCanceled, codeUnreachable, codeDenied, codeThrottled, codeNotReady}
}

func debugCauses() []string {
	causes := []debug.Cause{
		debug.NoReplicas, debug.Unreachable, debug.Unauthorized, debug.Forbidden, debug.NotServed, debug.Refused,
		debug.NotAnswer, debug.Truncated, debug.TooLarge, debug.Slow, debug.NoToken, debug.Plaintext,
	}
	names := make([]string, len(causes))
	for i, c := range causes {
		names[i] = causeCode(c)
	}
	return names
}

func streamCodes() []string {
	var names []string
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		names = append(names, streamCode(c))
	}
	return names
}

func debugMethods() []string {
	methods := []string{generator.Query, methodDebug + other}
	for _, q := range debugQueries() {
		methods = append(methods, methodDebug+q)
	}
	return methods
}

// valuesOf returns all values of a label of a metric, sorted; nil of a label whose values are
// names or addresses. A label that a series may lack has no empty value here.
func valuesOf(metric, label string) []string {
	values := slices.Clone(fixedValues(metric, label))
	slices.Sort(values)
	return slices.Compact(values)
}

func fixedValues(metric, label string) []string {
	if values, ok := labelsOfMetrics()[metric+" "+label]; ok {
		return values
	}
	return labelsOfAll()[label]
}

// labelsOfMetrics returns the values of labels that differ by metric.
func labelsOfMetrics() map[string][]string {
	return map[string][]string{
		"rpc_errors_total method":       slices.Concat(targetMethods(), debugMethods(), []string{methodStream, nacos.OpConnect, other}),
		"rpc_duration_seconds method":   slices.Concat(targetMethods(), debugMethods(), []string{other}),
		"rpc_bytes_total method":        slices.Concat(debugMethods(), []string{methodStream, methodNacos}),
		"rpc_errors_total code":         slices.Concat(callCodes(), streamCodes(), debugCauses(), []string{other}),
		"logins_total result":           append(callCodes(), loginOK),
		"changes_withheld_total reason": {withheldByHold, string(bridge.ObservedConflict), string(bridge.ObservedUnwritable)},
		"service_reasons reason":        texts(bridge.Reasons()),
		"mcp_errors_total reason":       texts([]mcp.ObservationKind{mcp.ObservedNack, mcp.ObservedPersistence, mcp.ObservedNoAddress}),
		"mcp_refused_total reason":      texts(mcp.Refusals()),
		"services role":                 {roleSource, roleClaimed},
		"endpoints role":                {roleSource, roleOwned, roleForeign},
		"condition direction":           texts([]admin.Direction{admin.OfSource, admin.OfTarget, admin.OfProcess}),
	}
}

// labelsOfAll returns the values of labels that are the same in all metrics.
func labelsOfAll() map[string][]string {
	return map[string][]string{
		"op":        append(entryOperations(), other),
		"type":      append(resourceTypes(), other),
		"limit":     append(limits(), other),
		"health":    healths(),
		"kind":      {"mesh", "kubernetes", "zookeeper", "nacos"},
		"direction": texts([]admin.Direction{admin.OfSource, admin.OfTarget}),
		"condition": texts(slices.Concat(admin.ConditionsOf(admin.OfSource), admin.ConditionsOf(admin.OfTarget), admin.ConditionsOf(admin.OfProcess))),
	}
}

func healths() []string {
	var names []string
	for h := range len(registry.Endpoints{}) {
		names = append(names, registry.Health(h).String()) //nolint:gosec // an index of few
	}
	return names
}

func texts[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// Query is a question that a metric answers, and its PromQL. METRIC stands for the metric.
type Query struct{ Question, PromQL string }

// queryOf returns the query that a metric is for.
func queryOf(metric string) Query {
	q := queries()[metric]
	q.PromQL = strings.ReplaceAll(q.PromQL, "METRIC", Prefix+metric)
	return q
}

func queries() map[string]Query {
	all := make(map[string]Query)
	for _, q := range []map[string]Query{
		processQueries(), registryQueries(), sourceQueries(), targetQueries(), guardQueries(), callQueries(), serverQueries(),
	} {
		maps.Copy(all, q)
	}
	return all
}

func processQueries() map[string]Query {
	return map[string]Query{
		"build_info":          {"How many replicas run each version?", `count by (version) (METRIC)`},
		"info":                {"Which replica leads each target?", `xdsbridge_replica_leads * on (job, instance) group_left (owner, identity) METRIC == 1`},
		"replica_leads":       {"Which targets have no leader, or several?", `sum by (registry) (METRIC) != 1`},
		"replica_members":     {"How many replicas does each replica see?", `min(METRIC)`},
		"replica_expected":    {"Are replicas missing?", `max(xdsbridge_replica_members) < max(METRIC)`},
		"replica_leases_lost": {"Which replicas lost a lease within an hour?", `delta(METRIC[1h]) > 0`},
	}
}

func registryQueries() map[string]Query {
	return map[string]Query{
		"condition":   {"Which conditions hold?", `max by (registry, listen, direction, condition) (METRIC) > 0`},
		"registry_up": {"Which registries have no connection?", `min by (registry, listen, direction) (METRIC) == 0`},
		"registry_last_contact_timestamp_seconds":      {"How long ago did each registry answer?", `time() - max by (registry, listen, direction) (METRIC)`},
		"registry_reconnects_total":                    {"How often did connections break within an hour?", `sum by (registry, direction) (increase(METRIC[1h]))`},
		"sessions_lost_total":                          {"How many sessions and streams were lost within an hour?", `sum by (registry) (increase(METRIC[1h]))`},
		"config_last_reload_successful":                {"Which replicas rejected their configuration file?", `METRIC == 0`},
		"config_last_reload_success_timestamp_seconds": {"How old is the running configuration?", `time() - METRIC`},
	}
}

func sourceQueries() map[string]Query {
	return map[string]Query{
		"source_synced":         {"Which sources have not been read in full?", `min by (registry) (METRIC) == 0`},
		"source_stale":          {"Which sources may be out of date?", `max by (registry) (METRIC) == 1`},
		"services":              {"How many services does each source report?", `max by (registry) (METRIC{role="source"})`},
		"endpoints":             {"How many endpoints of each source are healthy?", `max by (registry, health) (METRIC{role="source"})`},
		"invalid_inputs":        {"Did a source report more invalid inputs than an hour ago?", `max by (registry) (METRIC) - max by (registry) (METRIC offset 1h) > 0`},
		"mapping_keys":          {"Did a mesh lose half of its service keys within an hour?", `max by (registry) (METRIC) < 0.5 * max by (registry) (METRIC offset 1h)`},
		"mapping_age_seconds":   {"Has the mapping not been read for a minute?", `max by (registry) (METRIC) > 60`},
		"events_received_total": {"How many resources does each mesh send per second?", `sum by (registry) (rate(METRIC[5m]))`},
	}
}

func targetQueries() map[string]Query {
	return map[string]Query{
		"service_reasons":                {"How many services are not in sync, and why?", `max by (registry, bridge, reason) (METRIC{reason!~"synced|standby"}) > 0`},
		"unwritable_services":            {"How many services can a target not store?", `max by (registry, listen) (METRIC) > 0`},
		"conflicts":                      {"How many entries are blocked by those of other owners or services?", `max by (registry, listen) (METRIC) > 0`},
		"reconcile_queue_depth":          {"How many groups wait for a write?", `max by (registry, listen) (METRIC)`},
		"changes_applied_total":          {"How many entries are written per second?", `sum by (registry, listen, op) (rate(METRIC[5m]))`},
		"changes_failed_total":           {"How many writes fail per second?", `sum by (registry, listen) (rate(METRIC[5m]))`},
		"changes_withheld_total":         {"What was newly withheld within an hour, and why?", `sum by (bridge, reason) (increase(METRIC[1h])) > 0`},
		"retries_total":                  {"How many groups are retried per second?", `sum by (registry, listen) (rate(METRIC[5m]))`},
		"drift_found_total":              {"How often did others change the entries within an hour?", `sum by (registry, listen) (increase(METRIC[1h])) > 0`},
		"events_coalesced_total":         {"How many changes per second were merged into a pending one?", `sum by (registry, listen) (rate(METRIC[5m]))`},
		"limit_usage_ratio":              {"Which registries are close to a limit?", `max by (registry, limit) (METRIC) > 0.9`},
		"oldest_unsynced_change_seconds": {"Which targets lag by more than five minutes?", `max by (registry, listen) (METRIC) > 300`},
		"propagation_duration_seconds":   {"How long do 99% of changes take?", `histogram_quantile(0.99, sum by (le, bridge) (rate(METRIC_bucket[5m])))`},
	}
}

func guardQueries() map[string]Query {
	return map[string]Query{
		"guard_holds":              {"How many holds wait for an operator or a confirmation?", `max by (registry, listen) (METRIC) > 0`},
		"guard_hold_age_seconds":   {"Which holds are older than an hour?", `max by (registry, listen) (METRIC) > 3600`},
		"guard_holds_total":        {"How many holds began within a day?", `sum by (bridge) (increase(METRIC[1d]))`},
		"guard_denied_entries":     {"How many entries stay only because their deletion was denied?", `max by (registry, listen) (METRIC) > 0`},
		"guard_denied_age_seconds": {"Which denials are older than a day?", `max by (registry, listen) (METRIC) > 86400`},
	}
}

func callQueries() map[string]Query {
	return map[string]Query{
		"rpc_duration_seconds": {"How long do 99% of calls take?", `histogram_quantile(0.99, sum by (le, registry, method) (rate(METRIC_bucket[5m])))`},
		"rpc_errors_total":     {"How many calls fail per second, and why?", `sum by (registry, method, code) (rate(METRIC[5m]))`},
		"rpc_bytes_total":      {"How many bytes does each registry send per second?", `sum by (registry, method) (rate(METRIC[5m]))`},
		"logins_total":         {"How many logins failed within an hour?", `sum by (registry, result) (increase(METRIC{result!="ok"}[1h]))`},
		"xds_streams_total":    {"How many xDS streams were opened within an hour?", `sum by (registry) (increase(METRIC[1h]))`},
		"xds_responses_total":  {"How many responses does istiod send per second?", `sum by (registry, type) (rate(METRIC[5m]))`},
		"xds_requests_total":   {"How many requests are sent to istiod per second?", `sum by (registry, type) (rate(METRIC[5m]))`},
		"xds_nacks_total":      {"How many responses of istiod were rejected within an hour?", `sum by (registry, type) (increase(METRIC[1h])) > 0`},
	}
}

func serverQueries() map[string]Query {
	return map[string]Query{
		"mcp_streams":               {"Which addresses does no istiod and no data plane read?", `sum by (registry, listen) (METRIC) == 0`},
		"mcp_resources":             {"How many ServiceEntries are served?", `max by (registry, listen) (METRIC)`},
		"mcp_pushes_total":          {"How many sets are pushed per second?", `sum by (registry, listen) (rate(METRIC[5m]))`},
		"mcp_push_duration_seconds": {"How long do 99% of pushes take?", `histogram_quantile(0.99, sum by (le, registry, listen) (rate(METRIC_bucket[5m])))`},
		"mcp_errors_total":          {"What failed while serving, within an hour?", `sum by (registry, listen, reason) (increase(METRIC[1h])) > 0`},
		"mcp_refused_total":         {"Which clients were refused within 15 minutes, and why?", `sum by (registry, listen, reason) (increase(METRIC[15m])) > 0`},
		"mcp_rest_requests_total":   {"How many REST requests do data planes send per second?", `sum by (registry, listen) (rate(METRIC[5m]))`},
	}
}
