package config

import (
	"net"
	"net/netip"
)

// Istiod is a mesh, accessed through istiod.
type Istiod struct {
	Address       string  `yaml:"address" check:"address" doc:"The xDS address of istiod as host:port: port 15010 for plaintext, 15012 for TLS. Empty: there is no istiod, and import.dataPlanes serves data planes directly."`
	ID            string  `yaml:"id" parts:"fixed identity source loop" check:"name" doc:"The id of the mesh in marks, which prevents loops. Deployments that share a mesh must use the same id. Empty: the name of the registry."`
	TLS           *TLS    `yaml:"tls" doc:"TLS to istiod. Without it, the connection is plaintext."`
	TokenFile     string  `yaml:"tokenFile" check:"secret" doc:"A file with a service account token of audience istio-ca. Read again when it changes."`
	Insecure      bool    `yaml:"insecure" doc:"Allow the token to be sent over plaintext to other machines."`
	Node          Node    `yaml:"node" doc:"The xDS node that the bridge presents to istiod."`
	Mapping       Mapping `yaml:"mapping" doc:"Where service keys are read."`
	ExportAll     bool    `yaml:"exportAll" doc:"Also subscribe to hosts that no service key and no name rule refers to."`
	Subsets       bool    `yaml:"subsets" parts:"identity source loop" doc:"Also subscribe to the clusters of subsets, so that endpoints carry their subset."`
	ClusterDomain string  `yaml:"clusterDomain" default:"cluster.local" check:"domain" doc:"The domain of the Kubernetes Services of the mesh."`
	Limits        Limits  `yaml:"limits" doc:"Limits on what istiod may send."`
	Import        Import  `yaml:"import" parts:"connection loop" doc:"How services of other registries appear in this mesh."`
}

// Node is the identity with which the bridge connects to istiod.
type Node struct {
	Type      string `yaml:"type" default:"router" enum:"router|sidecar" doc:"The type of the node. A router gets the endpoints of headless services, a sidecar does not."`
	Name      string `yaml:"name" doc:"The name of the node, unique per replica. Empty: the host name."`
	Address   string `yaml:"address" check:"ip" doc:"The IP address of the node. Empty: the first global address of the machine."`
	Namespace string `yaml:"namespace" default:"istio-system" doc:"The namespace of the node. istiod opens its debug API to the root namespace, unless it is configured for others."`
	Cluster   string `yaml:"cluster" default:"Kubernetes" doc:"The id, at istiod, of the cluster in which the bridge runs."`
}

// Mapping says where the published service keys are read.
type Mapping struct {
	From            string   `yaml:"from" default:"auto" enum:"auto|debug-xds|debug-http|api|kubernetes|none" doc:"auto: debug-xds with tls, debug-http without. debug-xds: the debug API at the xDS address; requires tls. debug-http: the debug API over HTTP. api: annotations of ServiceEntries and WorkloadEntries, from istiod. kubernetes: annotations of objects, from the Kubernetes API. none: only name rules apply."`
	Addresses       []string `yaml:"addresses" check:"address" doc:"For debug-http: the host:port of every istiod replica. Empty: the endpoints of istiod's service, or the host of the xDS address, at port 15014, then 8080."`
	Interval        Duration `yaml:"interval" default:"5s" check:"interval" doc:"How often the service keys are read."`
	Timeout         Duration `yaml:"timeout" default:"10s" check:"timeout" doc:"How long one read may take."`
	MaxAnswer       Size     `yaml:"maxAnswer" default:"16MiB" check:"answer" doc:"The largest answer that is read: the list of connections, or one client with everything it watches. The keys of a larger answer are unknown, and status says so."`
	Grace           Duration `yaml:"grace" default:"10s" doc:"How long a service key is kept after its client withdrew it over an open connection."`
	LegacyKeys      bool     `yaml:"legacyKeys" doc:"Also accept service keys without a category, and with the category provider, as old clients publish them."`
	ConnectionGrace Duration `yaml:"connectionGrace" default:"5m" doc:"How long a service key is kept after the connection of its client closed."`

	Kubernetes MappingKubernetes `yaml:"kubernetes" doc:"Which objects carry service keys. kubernetes reads Services, EndpointSlices, Pods, ServiceEntries and WorkloadEntries. api uses only namespaces and keys."`
}

// MappingKubernetes says which objects hold service keys.
type MappingKubernetes struct {
	Kubeconfig string         `yaml:"kubeconfig" check:"kubeconfig" doc:"A kubeconfig file, read at start. Empty: the service account in a pod; elsewhere $KUBECONFIG or ~/.kube/config."`
	Context    string         `yaml:"context" doc:"The context of the kubeconfig. Empty: its current context."`
	Namespaces []string       `yaml:"namespaces" check:"namespace" filled:"to read none write from: none" doc:"The namespaces to read. Without it, all. A namespace that cannot be read affects only itself."`
	Keys       KubernetesKeys `yaml:"keys" doc:"Where objects carry service keys."`
}

// Hosts says how services of other registries appear as hosts of a mesh.
type Hosts struct {
	Namespace string         `yaml:"namespace" parts:"fixed loop" default:"xds-bridge" doc:"The namespace of the hosts."`
	Suffix    string         `yaml:"suffix" parts:"fixed source loop" default:"bridge.internal" check:"domain" doc:"The suffix of the hosts. Hosts with this suffix are never exported."`
	VIPs      netip.Prefix   `yaml:"vips" parts:"connection loop" default:"240.64.0.0/12" doc:"The network from which virtual addresses are allocated."`
	ExportTo  []string       `yaml:"exportTo" parts:"loop" check:"namespace" filled:"to show them to none remove the bridges into this mesh" doc:"The namespaces that see the hosts, as in exportTo of a ServiceEntry. Without it, all."`
	Allow     []netip.Prefix `yaml:"allow" parts:"loop" filled:"to let none in remove the bridges into this mesh" doc:"The networks in which endpoints may be. Without it, any. Loopback, link-local, multicast and cloud metadata addresses also require select.allow."`
}

// Import says how services of other registries are served into a mesh.
type Import struct {
	Hosts

	DataPlanes bool       `yaml:"dataPlanes" doc:"Also serve data planes at the listen addresses of bridges into this mesh: Envoy and proxyless gRPC."`
	Rules      string     `yaml:"rulesFile" doc:"For dataPlanes: a YAML file of DestinationRules and VirtualServices that data planes use for routing. Read when the bridges into this mesh start or restart."`
	Keys       string     `yaml:"keys" default:"publish" enum:"publish|off" doc:"Whether to publish the service keys of imported hosts through istiod, so that proxyless dubbo-go can resolve them."`
	TLS        *ServerTLS `yaml:"tls" doc:"TLS at the listen addresses of bridges into this mesh. Without it, clients are served in plaintext. The files are read for each connection."`
	Clients    Clients    `yaml:"clients" doc:"The clients that may connect to the listen addresses of bridges into this mesh."`
}

// ServerTLS is our certificate, and the clients to trust.
type ServerTLS struct {
	CertFile string `yaml:"certFile" need:"the server requires a certificate of its own, with keyFile" doc:"The certificate of the bridge as PEM, valid for the name in istiod's configSources."`
	KeyFile  string `yaml:"keyFile" need:"it goes together with certFile" doc:"The key of certFile as PEM."`
	CAFile   string `yaml:"caFile" check:"certificates" doc:"CA certificates as PEM. A client must present a certificate that one of them signed. istiod presents none itself, so it then requires a proxy in front. Empty: no client certificate is required."`
}

// Clients says who may connect.
type Clients struct {
	Networks []netip.Prefix `yaml:"networks" filled:"to let none in remove the bridges into this mesh" doc:"The networks from which clients may connect. Without it, any."`
	Names    []string       `yaml:"names" check:"identity" filled:"to let none in remove the bridges into this mesh" doc:"Names that are allowed in client certificates: DNS names, URIs or IP addresses, such as spiffe://cluster.local/ns/istio-system/sa/istiod. Requires tls.caFile. Without it, any trusted certificate is accepted."`
}

// PublishesKeys reports whether the service keys of imported hosts are published.
func (m *Istiod) PublishesKeys() bool { return m.Address != "" && m.Import.Keys != "off" }

// Settings implements Section.
func (m *Istiod) Settings() Settings {
	return Settings{
		Kind: "istiod", Title: "the mesh", ID: m.ID, Mesh: &m.Import.Hosts, Subsets: m.Subsets, Limits: m.Limits,
	}
}

func (m *Istiod) validate(v *validator, path string) {
	switch {
	case m.Address != "":
		m.validateTransport(v, path)
	case !m.Import.DataPlanes:
		v.errorf(path+".address", "missing; write istiod's host:port or, without an istiod, import: {dataPlanes: true}")
	}
	if m.Mapping.From == "debug-xds" && m.TLS == nil {
		v.errorf(path+".mapping.from", "debug-xds requires TLS; write tls: {caFile: …} and port 15012, or from: debug-http")
	}
}

func (m Import) validate(v *validator, path string) {
	if m.Rules != "" && !m.DataPlanes {
		v.errorf(path+".rulesFile", "is only used for data planes, and none are served; "+
			"write dataPlanes: true, or leave it out")
	}
	if len(m.Clients.Names) > 0 && (m.TLS == nil || m.TLS.CAFile == "") {
		v.errorf(path+".clients.names", "requires client certificates, which are not verified without tls.caFile; "+
			"write tls: {caFile: …}")
	}
}

// validateTransport checks that address, TLS and token go together.
func (m *Istiod) validateTransport(v *validator, path string) {
	switch host, port, _ := net.SplitHostPort(m.Address); {
	case m.TLS == nil && port == "15012":
		v.errorf(path+".tls", "missing; istiod speaks TLS on 15012: write tls: {caFile: …}, or use 15010 for plaintext")
	case m.TLS != nil && port == "15010":
		v.errorf(path+".tls", "istiod speaks plaintext on 15010; use 15012, or leave tls out")
	case m.TLS == nil && m.TokenFile != "" && !m.Insecure && !loopback(host):
		v.errorf(path+".tokenFile", "the token would cross the network in plaintext; "+
			"write tls: {caFile: …} and port 15012, or insecure: true")
	}
}

func (k Mapping) validate(v *validator, path string) {
	if len(k.Addresses) > 0 && k.From != "debug-http" && k.From != "auto" {
		v.errorf(path+".addresses", "is only used by debug-http; leave it out, or write from: debug-http")
	}
}

func (s *ServerTLS) files(v *validator, path string) { v.checkKeyPair(path, s.CertFile, s.KeyFile) }
