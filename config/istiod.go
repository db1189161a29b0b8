package config

import (
	"net"
	"net/netip"
)

// Istiod is a mesh, accessed through istiod.
type Istiod struct {
	Address       string  `yaml:"address" check:"address" doc:"istiod's xDS address as host:port: 15010 in plaintext, 15012 with TLS. Empty: there is no istiod, and import.dataPlanes serves data planes alone."`
	ID            string  `yaml:"id" parts:"fixed identity source loop" check:"name" doc:"The mesh's id in the path of an entry, which ends loops; the registry's name if it is empty. Deployments that share a mesh have to call it the same."`
	TLS           *TLS    `yaml:"tls" doc:"TLS to istiod; without it the connection is plaintext."`
	TokenFile     string  `yaml:"tokenFile" check:"secret" doc:"A service account token of audience istio-ca; read again when it changes."`
	Insecure      bool    `yaml:"insecure" doc:"Send the token over plaintext to other machines too."`
	Node          Node    `yaml:"node" doc:"Who the bridge says it is."`
	Mapping       Mapping `yaml:"mapping" doc:"Where the published service keys are read."`
	ExportAll     bool    `yaml:"exportAll" doc:"Subscribe to hosts that no key and no name rule asks for too."`
	Subsets       bool    `yaml:"subsets" parts:"identity source loop" doc:"Subscribe to subset clusters too, so that endpoints carry their subset."`
	ClusterDomain string  `yaml:"clusterDomain" default:"cluster.local" check:"domain" doc:"The domain of the mesh's Kubernetes services."`
	Limits        Limits  `yaml:"limits" doc:"What istiod may send."`
	Import        Import  `yaml:"import" parts:"connection loop" doc:"How services of other registries appear in this mesh."`
}

// Node is the identity with which the bridge connects to istiod.
type Node struct {
	Type      string `yaml:"type" default:"router" enum:"router|sidecar" doc:"A router gets the endpoints of headless services."`
	Name      string `yaml:"name" doc:"Unique per replica; the machine's name if it is empty."`
	Address   string `yaml:"address" check:"ip" doc:"Our IP address as istiod sees it; found out if it is empty."`
	Namespace string `yaml:"namespace" default:"istio-system" doc:"The root namespace, unless the debug API is opened to another."`
	Cluster   string `yaml:"cluster" default:"Kubernetes" doc:"istiod's id of the cluster we run in."`
}

// Mapping says where the published service keys are read.
type Mapping struct {
	From            string   `yaml:"from" default:"auto" enum:"auto|debug-xds|debug-http|api|kubernetes|none" doc:"kubernetes reads annotations of objects by the Kubernetes API; api reads those of ServiceEntries and WorkloadEntries from istiod; debug-xds uses the xDS address and requires TLS; auto is debug-xds with tls and debug-http without; none leaves only name rules."`
	Addresses       []string `yaml:"addresses" check:"address" doc:"For debug-http: host:port of every istiod replica; the endpoints of istiod's own service, or the xDS address's host, at 15014, then at 8080, if it is empty."`
	Interval        Duration `yaml:"interval" default:"5s" check:"interval" doc:"How often the keys are read."`
	Timeout         Duration `yaml:"timeout" default:"10s" check:"timeout" doc:"How long one reading may take."`
	MaxAnswer       Size     `yaml:"maxAnswer" default:"16MiB" check:"answer" doc:"The largest answer that is read: the list of connections, or one client with all it watches. What is larger is unknown, and shown."`
	Grace           Duration `yaml:"grace" default:"10s" doc:"How long a key stays that was withdrawn while its connection is open."`
	LegacyKeys      bool     `yaml:"legacyKeys" doc:"Accept service keys without a category and of the category provider too, as old clients publish them."`
	ConnectionGrace Duration `yaml:"connectionGrace" default:"5m" doc:"How long a key stays whose connection went."`

	Kubernetes MappingKubernetes `yaml:"kubernetes" doc:"For kubernetes: which objects carry service keys. Services, EndpointSlices, Pods and Istio's ServiceEntries and WorkloadEntries are read. For api, namespaces and keys count."`
}

// MappingKubernetes says which objects hold service keys.
type MappingKubernetes struct {
	Kubeconfig string         `yaml:"kubeconfig" check:"kubeconfig" doc:"A kubeconfig file, read at the start. If it is empty: within a pod its service account, elsewhere $KUBECONFIG or ~/.kube/config."`
	Context    string         `yaml:"context" doc:"The context of kubeconfig; its current one if it is empty."`
	Namespaces []string       `yaml:"namespaces" check:"namespace" filled:"to read none write from: none" doc:"Namespaces that are read; without it all. One that we may not read costs itself alone."`
	Keys       KubernetesKeys `yaml:"keys" doc:"Where service keys are."`
}

// Hosts says how services of other registries appear as hosts of a mesh.
type Hosts struct {
	Namespace string         `yaml:"namespace" parts:"fixed loop" default:"xds-bridge" doc:"The namespace of the hosts."`
	Suffix    string         `yaml:"suffix" parts:"fixed source loop" default:"bridge.internal" check:"domain" doc:"What the hosts end in; nothing under it is exported."`
	VIPs      netip.Prefix   `yaml:"vips" parts:"connection loop" default:"240.64.0.0/12" doc:"The network virtual addresses are chosen from."`
	ExportTo  []string       `yaml:"exportTo" parts:"loop" check:"namespace" filled:"to show them to none remove the bridges into this mesh" doc:"Namespaces that see the hosts, as exportTo of a ServiceEntry; without it all do."`
	Allow     []netip.Prefix `yaml:"allow" parts:"loop" filled:"to let none in remove the bridges into this mesh" doc:"Networks that endpoints may lie in; without it in any. Loopback, link-local, multicast and metadata services need select.allow besides."`
}

// Import says how services of other registries are served into a mesh.
type Import struct {
	Hosts

	DataPlanes bool       `yaml:"dataPlanes" doc:"Serve data planes at the listen addresses of bridges into this mesh too: Envoy, and gRPC without a proxy."`
	Rules      string     `yaml:"rulesFile" doc:"With dataPlanes: Istio's DestinationRules and VirtualServices as YAML, by which data planes divide calls; read when the bridges into this mesh start, at a restart or a change of their configuration."`
	Keys       string     `yaml:"keys" default:"publish" enum:"publish|off" doc:"Whether the service keys of imported hosts are published through istiod, if there is one, so that proxyless dubbo-go resolves them."`
	TLS        *ServerTLS `yaml:"tls" doc:"TLS at the listen addresses of bridges into this mesh; without it clients are served in plaintext. Files are read again for each connection."`
	Clients    Clients    `yaml:"clients" doc:"Who may connect to the listen addresses of bridges into this mesh."`
}

// ServerTLS is our certificate, and the clients to trust.
type ServerTLS struct {
	CertFile string `yaml:"certFile" need:"the server requires a certificate of its own, with keyFile" doc:"Our certificate as PEM, for the name in istiod's configSources."`
	KeyFile  string `yaml:"keyFile" need:"it goes together with certFile" doc:"Our key as PEM."`
	CAFile   string `yaml:"caFile" check:"certificates" doc:"Certificates as PEM: a client must have one that they sign. istiod itself has none for this, so that it then requires a proxy before it; empty asks for none."`
}

// Clients says who may connect.
type Clients struct {
	Networks []netip.Prefix `yaml:"networks" filled:"to let none in remove the bridges into this mesh" doc:"Networks that clients may connect from; without it from all."`
	Names    []string       `yaml:"names" check:"identity" filled:"to let none in remove the bridges into this mesh" doc:"With tls.caFile: DNS names, URIs or IP addresses of which a client's certificate has to hold one, such as spiffe://cluster.local/ns/istio-system/sa/istiod; without it each that is trusted may connect."`
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
