package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Mesh is a directory of Istio configuration that an Istiod watches, and the
// MCP servers that it reads next to the directory.
type Mesh struct {
	dir        string
	sources    []object
	plaintext  bool
	kubeconfig string
}

// NewMesh returns a mesh without services.
func NewMesh(t testing.TB) *Mesh {
	t.Helper()
	return &Mesh{dir: t.TempDir()}
}

// Dir returns the directory.
func (m *Mesh) Dir() string { return m.dir }

// From makes istiods that are started later read an MCP server too. It has to
// listen before they start: an istiod whose source is away at its start ends.
func (m *Mesh) From(address string) {
	m.sources = append(m.sources, object{"address": "xds://" + address})
}

// FromSecure is From with the tlsSettings of the source, as Istio's
// ClientTLSSettings has them.
func (m *Mesh) FromSecure(address string, settings map[string]any) {
	m.sources = append(m.sources, object{"address": "xds://" + address, "tlsSettings": settings})
}

// WithoutMutualTLS makes istiods that are started later not prepare clients for
// endpoints that want mutual TLS, for which each would need a certificate.
func (m *Mesh) WithoutMutualTLS() { m.plaintext = true }

// In makes istiods that are started later read a cluster instead of the directory,
// as the administrator.
func (m *Mesh) In(t testing.TB, k *Kubernetes) {
	t.Helper()
	m.kubeconfig = k.Kubeconfig(t, Administrator)
}

// arguments returns what an istiod is given of the mesh.
func (m *Mesh) arguments(t testing.TB) []string {
	t.Helper()
	if m.kubeconfig != "" {
		return []string{"-kubeconfig", m.kubeconfig}
	}
	if len(m.sources) == 0 && !m.plaintext {
		return []string{"-configDir", m.dir}
	}
	sources := append([]object{{"address": "fs://" + m.dir}}, m.sources...)
	text, err := json.Marshal(object{"configSources": sources, "enableAutoMtls": !m.plaintext})
	must(t, err)
	file := filepath.Join(t.TempDir(), "mesh.yaml")
	must(t, os.WriteFile(file, text, 0o600))
	return []string{"-meshConfig", file}
}

// Service is a mesh service with one port, as a ServiceEntry.
type Service struct {
	Host      string // for example greet.shop.svc.cluster.local
	Port      int
	Subsets   map[string]map[string]string // subset name to labels: a DestinationRule
	Shares    map[string]int               // subset name to its percentage of the calls: a VirtualService
	Endpoints []Endpoint
	Keys      string // the annotation that lists its service keys; empty: none
}

// Endpoint is one address of a Service.
type Endpoint struct {
	Address  string
	Port     int
	Weight   int
	Locality string // region/zone/subzone
	Labels   map[string]string
}

// Local returns endpoints at ports of 127.0.0.1.
func Local(ports ...int) []Endpoint {
	var endpoints []Endpoint
	for _, p := range ports {
		endpoints = append(endpoints, Endpoint{Address: "127.0.0.1", Port: p})
	}
	return endpoints
}

// Apply adds the services to the mesh or replaces those of the same host, each
// in one step.
func (m *Mesh) Apply(t testing.TB, services ...Service) {
	t.Helper()
	for _, s := range services {
		m.write(t, s.Host, s.documents()...)
	}
}

// ApplyTogether puts all the services into the mesh as one file, named so that
// a later call replaces it.
func (m *Mesh) ApplyTogether(t testing.TB, name string, services ...Service) {
	t.Helper()
	var documents []any
	for _, s := range services {
		documents = append(documents, s.documents()...)
	}
	m.write(t, name, documents...)
}

// Remove removes a service, or what ApplyTogether named so, from the mesh.
func (m *Mesh) Remove(t testing.TB, name string) {
	t.Helper()
	must(t, os.Remove(m.file(name)))
}

// write replaces a file in one step, so that istiod never reads half of it.
func (m *Mesh) write(t testing.TB, name string, documents ...any) {
	t.Helper()
	var text []byte
	for _, d := range documents {
		b, err := json.Marshal(d) // JSON is YAML
		must(t, err)
		text = append(append(text, b...), "\n---\n"...)
	}
	unfinished := filepath.Join(t.TempDir(), "unfinished")
	must(t, os.WriteFile(unfinished, text, 0o600))
	must(t, os.Rename(unfinished, m.file(name)))
}

func (m *Mesh) file(name string) string { return filepath.Join(m.dir, name+".yaml") }

// object is a JSON object of an Istio document.
type object = map[string]any

func (s Service) documents() []any {
	const portName = "rpc"
	endpoints := make([]any, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		o := object{"address": e.Address, "ports": object{portName: e.Port}}
		if e.Weight > 0 {
			o["weight"] = e.Weight
		}
		if e.Locality != "" {
			o["locality"] = e.Locality
		}
		if e.Labels != nil {
			o["labels"] = e.Labels
		}
		endpoints = append(endpoints, o)
	}
	metadata := object{"name": s.Host, "namespace": "shop"}
	if s.Keys != "" {
		metadata["annotations"] = object{"xds-bridge/keys": s.Keys}
	}
	documents := []any{object{
		"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
		"metadata": metadata,
		"spec": object{
			"hosts": []string{s.Host}, "location": "MESH_INTERNAL", "resolution": "STATIC",
			"ports":     []any{object{"number": s.Port, "name": portName, "protocol": "GRPC"}},
			"endpoints": endpoints,
		},
	}}
	if s.Subsets == nil {
		return documents
	}
	subsets := make([]any, 0, len(s.Subsets))
	for name, labels := range s.Subsets {
		subsets = append(subsets, object{"name": name, "labels": labels})
	}
	documents = append(documents, object{
		"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
		"metadata": object{"name": s.Host, "namespace": "shop"},
		"spec":     object{"host": s.Host, "subsets": subsets},
	})
	if s.Shares == nil {
		return documents
	}
	shares := make([]any, 0, len(s.Shares))
	for name, weight := range s.Shares {
		shares = append(shares, object{"destination": object{"host": s.Host, "subset": name}, "weight": weight})
	}
	return append(documents, object{
		"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
		"metadata": object{"name": s.Host, "namespace": "shop"},
		"spec":     object{"hosts": []string{s.Host}, "http": []any{object{"route": shares}}},
	})
}
