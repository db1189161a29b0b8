package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// EnvoyOptions say as which node of the mesh an Envoy runs and where it sends
// what it is asked.
type EnvoyOptions struct {
	Type    string // sidecar or router
	Routes  string // name of istiod's route configuration: it sends by host name
	Cluster string // or the cluster that it sends everything to
}

// Envoy is a real Envoy on 127.0.0.1 with one listener. Where its clusters and
// endpoints are, istiod alone reports it.
type Envoy struct {
	HTTP  string // where it answers; empty where that is up to the control plane
	Admin string
}

// StartDataPlane starts an Envoy that has nothing but the address of a control
// plane, which sends it where to listen, and waits until it is ready. It asks in
// a form of the protocol: GRPC or DELTA_GRPC.
func StartDataPlane(t testing.TB, node, address, form string) *Envoy {
	t.Helper()
	e := &Envoy{}
	ads := overGRPC("bridge")
	ads["api_type"] = form
	e.start(t, object{
		"node": object{"id": node, "cluster": "envoy"},
		"dynamic_resources": object{
			"ads_config": ads, "cds_config": overADS(), "lds_config": overADS(),
		},
		"static_resources": object{"clusters": []any{cluster("bridge", socket(address))}},
	})
	return e
}

// StartEnvoy starts an Envoy and waits until it is ready. It has no certificate,
// so that its mesh has to be one WithoutMutualTLS.
func StartEnvoy(t testing.TB, istiod *Istiod, o EnvoyOptions) *Envoy {
	t.Helper()
	e := &Envoy{HTTP: Address(t)}
	e.start(t, object{
		"node":              object{"id": o.Type + "~127.0.0.1~envoy.shop~shop.svc.cluster.local", "cluster": "envoy"},
		"dynamic_resources": object{"ads_config": overGRPC("istiod"), "cds_config": overADS()},
		"static_resources": object{
			"listeners": []any{o.listener(e.HTTP)},
			"clusters":  []any{cluster("istiod", socket(istiod.GRPC))},
		},
	})
	return e
}

func (e *Envoy) start(t testing.TB, bootstrap object) {
	t.Helper()
	e.Admin = Address(t)
	bootstrap["admin"] = object{"address": socket(e.Admin)}
	dir := t.TempDir()
	text, err := json.Marshal(bootstrap)
	must(t, err)
	file := filepath.Join(dir, "bootstrap.json")
	must(t, os.WriteFile(file, text, 0o600))
	p := Start(t, Command{
		Name: "envoy", Path: installed(t, "envoy"), Dir: dir,
		Args: []string{"-c", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"}, // several share no memory
	})
	Eventually(t, startTime, "envoy is ready", func() error {
		if !p.Running() {
			t.Fatalf("envoy ended: %s", p.tail())
		}
		_, err := get(t, "http://"+e.Admin+"/ready")
		return err
	})
}

func (o EnvoyOptions) listener(address string) object {
	const router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
	const manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	config := object{
		"@type": manager, "stat_prefix": "http",
		"http_filters": []any{object{"name": "envoy.filters.http.router", "typed_config": object{"@type": router}}},
	}
	if o.Routes != "" {
		config["rds"] = object{"route_config_name": o.Routes, "config_source": overADS()}
	} else {
		route := object{"match": object{"prefix": "/"}, "route": object{"cluster": o.Cluster}}
		config["route_config"] = object{
			"validate_clusters": false, // istiod has yet to report it
			"virtual_hosts":     []any{object{"name": "all", "domains": []string{"*"}, "routes": []any{route}}},
		}
	}
	filter := object{"name": "envoy.filters.network.http_connection_manager", "typed_config": config}
	return object{"name": "http", "address": socket(address), "filter_chains": []any{object{"filters": []any{filter}}}}
}

func cluster(name string, address object) object {
	const protocols = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	endpoint := object{"endpoint": object{"address": address}}
	return object{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"typed_extension_protocol_options": object{protocols: object{
			"@type":                "type.googleapis.com/" + protocols,
			"explicit_http_config": object{"http2_protocol_options": object{}},
		}},
		"load_assignment": object{"cluster_name": name, "endpoints": []any{object{"lb_endpoints": []any{endpoint}}}},
	}
}

func overGRPC(cluster string) object {
	service := object{"envoy_grpc": object{"cluster_name": cluster}}
	return object{"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": []any{service}}
}

func overADS() object { return object{"ads": object{}, "resource_api_version": "V3"} }

func socket(address string) object {
	host, port, _ := strings.Cut(address, ":")
	return object{"socket_address": object{"address": host, "port_value": json.RawMessage(port)}}
}

// Get asks for / of a host and returns what answers with 200.
func (e *Envoy) Get(t testing.TB, host string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.HTTP+"/", http.NoBody)
	must(t, err)
	request.Host = host
	status, body, err := answer(&http.Client{Timeout: httpTime}, request)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s through envoy: status %d: %s", host, status, body)
	}
	return body, err
}
