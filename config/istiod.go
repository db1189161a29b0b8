package config

import (
	"net/netip"
	"strconv"
)

// Istiod is a mesh, accessed through istiod.
type Istiod struct {
	Address       string  `yaml:"address" doc:"istiod's xDS address as host:port: 15010 in plaintext, 15012 with TLS. Empty: there is no istiod, and import.dataPlanes serves data planes alone."`
	ID            string  `yaml:"id" doc:"The mesh's id in the path of an entry, which ends loops; the registry's name if it is empty. Deployments that share a mesh have to call it the same."`
	TLS           *TLS    `yaml:"tls" doc:"TLS to istiod; without it the connection is plaintext."`
	TokenFile     string  `yaml:"tokenFile" doc:"A service account token of audience istio-ca; read again when it changes."`
	Insecure      bool    `yaml:"insecure" doc:"Send the token over plaintext to other machines too."`
	Node          Node    `yaml:"node" doc:"Who the bridge says it is."`
	Mapping       Mapping `yaml:"mapping" doc:"Where the published service keys are read."`
	ExportAll     bool    `yaml:"exportAll" doc:"Subscribe to hosts that no key and no name rule asks for too."`
	Subsets       bool    `yaml:"subsets" doc:"Subscribe to subset clusters too, so that endpoints carry their subset."`
	ClusterDomain string  `yaml:"clusterDomain" default:"cluster.local" doc:"The domain of the mesh's Kubernetes services."`
	Limits        Limits  `yaml:"limits" doc:"What istiod may send."`
	Import        Import  `yaml:"import" doc:"How services of other registries appear in this mesh."`
}

// Node is who the bridge says it is to istiod.
type Node struct {
	Type      string `yaml:"type" default:"router" enum:"router|sidecar" doc:"A router gets the endpoints of headless services."`
	Name      string `yaml:"name" doc:"Unique per replica; the machine's name if it is empty."`
	Address   string `yaml:"address" doc:"Our IP address as istiod sees it; found out if it is empty."`
	Namespace string `yaml:"namespace" default:"istio-system" doc:"The root namespace, unless the debug API is opened to another."`
	Cluster   string `yaml:"cluster" default:"Kubernetes" doc:"istiod's id of the cluster we run in."`
}

// Mapping says where the published service keys are read.
type Mapping struct {
	From            string   `yaml:"from" default:"auto" enum:"auto|debug-xds|debug-http|api|kubernetes|none" doc:"kubernetes reads annotations of objects by the Kubernetes API; api reads those of ServiceEntries and WorkloadEntries from istiod; debug-xds uses the xDS address and requires TLS; auto is debug-xds with tls and debug-http without; none leaves only name rules."`
	Addresses       []string `yaml:"addresses" doc:"For debug-http: host:port of every istiod replica; the endpoints of istiod's own service, or the xDS address's host, at 15014, then at 8080, if it is empty."`
	Interval        Duration `yaml:"interval" default:"5s" doc:"How often the keys are read."`
	Timeout         Duration `yaml:"timeout" default:"10s" doc:"How long one reading may take."`
	MaxAnswer       Size     `yaml:"maxAnswer" default:"16MiB" doc:"The largest answer that is read: the list of connections, or one client with all it watches. What is larger is unknown, and shown."`
	Grace           Duration `yaml:"grace" default:"10s" doc:"How long a key stays that was withdrawn while its connection is open."`
	LegacyKeys      bool     `yaml:"legacyKeys" doc:"Accept service keys without a category and of the category provider too, as old clients publish them."`
	ConnectionGrace Duration `yaml:"connectionGrace" default:"5m" doc:"How long a key stays whose connection went."`

	Kubernetes MappingKubernetes `yaml:"kubernetes" doc:"For kubernetes: which objects carry service keys. Services, EndpointSlices, Pods and Istio's ServiceEntries and WorkloadEntries are read. For api, namespaces and keys count."`
}

// MappingKubernetes says which objects carry service keys.
type MappingKubernetes struct {
	Kubeconfig string         `yaml:"kubeconfig" doc:"A kubeconfig file, read at the start. If it is empty: within a pod its service account, elsewhere $KUBECONFIG or ~/.kube/config."`
	Context    string         `yaml:"context" doc:"The context of kubeconfig; its current one if it is empty."`
	Namespaces []string       `yaml:"namespaces" filled:"to read none write from: none" doc:"Namespaces that are read; without it all. One that we may not read costs itself alone."`
	Keys       KubernetesKeys `yaml:"keys" doc:"Where service keys are."`
}

// Hosts says how services of other registries appear as hosts of a mesh.
type Hosts struct {
	Namespace string         `yaml:"namespace" default:"xds-bridge" doc:"The namespace of the hosts."`
	Suffix    string         `yaml:"suffix" default:"bridge.internal" doc:"What the hosts end in; nothing under it is exported."`
	VIPs      netip.Prefix   `yaml:"vips" default:"240.64.0.0/12" doc:"The network virtual addresses are chosen from."`
	ExportTo  []string       `yaml:"exportTo" filled:"to show them to none remove the bridges into this mesh" doc:"Namespaces that see the hosts, as exportTo of a ServiceEntry; without it all do."`
	Allow     []netip.Prefix `yaml:"allow" filled:"to let none in remove the bridges into this mesh" doc:"Networks that endpoints may lie in; without it in any. Loopback, link-local, multicast and metadata services need select.allow besides."`
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

// ServerTLS says who we are to clients, and whom of them to trust.
type ServerTLS struct {
	CertFile string `yaml:"certFile" need:"true" doc:"Our certificate as PEM, for the name in istiod's configSources."`
	KeyFile  string `yaml:"keyFile" need:"true" doc:"Our key as PEM."`
	CAFile   string `yaml:"caFile" doc:"Certificates as PEM: a client must have one that they sign. istiod itself has none for this, so that it then requires a proxy before it; empty asks for none."`
}

// Clients says who may connect.
type Clients struct {
	Networks []netip.Prefix `yaml:"networks" filled:"to let none in remove the bridges into this mesh" doc:"Networks that clients may connect from; without it from all."`
	Names    []string       `yaml:"names" filled:"to let none in remove the bridges into this mesh" doc:"With tls.caFile: DNS names, URIs or IP addresses of which a client's certificate has to hold one; without it each that is trusted may connect."`
}

// PublishesKeys reports whether service keys of imported hosts are published.
func (m *Istiod) PublishesKeys() bool { return m.Address != "" && m.Import.Keys != "off" }

// Settings implements Section.
func (m *Istiod) Settings() Settings {
	return Settings{
		Kind: "istiod", Title: "the mesh", ID: m.ID, Limits: m.Limits,
		Fixed: map[string]string{"id": m.ID, "import.namespace": m.Import.Namespace, "import.suffix": m.Import.Suffix},
	}
}

// Parts implements Section.
func (m *Istiod) Parts() Parts {
	loop := *m
	loop.Limits = m.Limits.ofConnection()
	source := loop
	source.Import = Import{}
	return Parts{
		Identity:   Registry{Istiod: &Istiod{ID: m.ID, Subsets: m.Subsets}},
		Source:     Registry{Istiod: &source},
		Connection: Registry{Istiod: &Istiod{Import: Import{Hosts: Hosts{VIPs: m.Import.VIPs}, Keys: m.Import.Keys, TLS: m.Import.TLS, Clients: m.Import.Clients}}},
		Loop:       Registry{Istiod: &loop},
	}
}

func (m *Istiod) validate(v *validator, path string) {
	switch {
	case m.Address != "":
		m.validateTransport(v, path)
	case !m.Import.DataPlanes:
		v.errorf(path+".address", "missing; write istiod's as host:port or, where there is no istiod, import: {dataPlanes: true}")
	}
	v.optionalName(path+".id", m.ID)
	if m.Node.Address != "" {
		if _, err := netip.ParseAddr(m.Node.Address); err != nil {
			v.errorf(path+".node.address", "%q is no IP address", m.Node.Address)
		}
	}
	v.domain(path+".clusterDomain", m.ClusterDomain)
	m.Mapping.validate(v, path+".mapping", m.TLS)
	m.Limits.validate(v, path+".limits")
	m.Import.validate(v, path+".import")
}

func (m Import) validate(v *validator, path string) {
	m.Hosts.validate(v, path)
	if t := m.TLS; t != nil {
		v.pair(path+".tls", [2]string{"certFile", t.CertFile}, [2]string{"keyFile", t.KeyFile})
		if t.CertFile == "" && t.KeyFile == "" {
			v.errorf(path+".tls.certFile", "missing; the server requires a certificate of its own, with keyFile")
		}
	}
	if m.Rules != "" && !m.DataPlanes {
		v.errorf(path+".rulesFile", "is followed by data planes only, and none are served; write dataPlanes: true, or leave it out")
	}
	m.validateClients(v, path+".clients")
}

func (h Hosts) validate(v *validator, path string) {
	v.domain(path+".suffix", h.Suffix)
	v.prefixes(path+".vips", []netip.Prefix{h.VIPs})
	v.prefixes(path+".allow", h.Allow)
	v.namespaces(path+".exportTo", h.ExportTo)
}

func (m Import) validateClients(v *validator, path string) {
	v.prefixes(path+".networks", m.Clients.Networks)
	if len(m.Clients.Names) > 0 && (m.TLS == nil || m.TLS.CAFile == "") {
		v.errorf(path+".names", "are those in clients' certificates, and without tls.caFile they need none; write tls: {caFile: …}")
	}
	for i, name := range m.Clients.Names {
		if name == "" {
			v.errorf(path+".names["+strconv.Itoa(i)+"]", "is empty; write a name that a certificate holds, such as spiffe://cluster.local/ns/istio-system/sa/istiod")
		}
	}
}

// validateTransport checks that address, TLS and token go together.
func (m *Istiod) validateTransport(v *validator, path string) {
	host, port := v.address(path+".address", m.Address)
	m.TLS.validate(v, path+".tls")
	switch {
	case m.TLS == nil && port == "15012":
		v.errorf(path+".tls", "missing; istiod speaks TLS on 15012: write tls: {caFile: …}, or use 15010 for plaintext")
	case m.TLS != nil && port == "15010":
		v.errorf(path+".tls", "istiod speaks plaintext on 15010; use 15012, or leave tls out")
	case m.TLS == nil && m.TokenFile != "" && !m.Insecure && !loopback(host):
		v.errorf(path+".tokenFile", "the token would cross the network in plaintext; write tls: {caFile: …} and port 15012, or insecure: true")
	}
}

func (k Mapping) validate(v *validator, path string, tls *TLS) {
	if k.From == "debug-xds" && tls == nil {
		v.errorf(path+".from", "istiod answers debug-xds over TLS only; write tls: {caFile: …} and port 15012, or from: debug-http")
	}
	if len(k.Addresses) > 0 && k.From != "debug-http" && k.From != "auto" {
		v.errorf(path+".addresses", "are read by debug-http only; leave them out, or write from: debug-http")
	}
	for i, a := range k.Addresses {
		v.address(path+".addresses["+strconv.Itoa(i)+"]", a)
	}
	v.namespaces(path+".kubernetes.namespaces", k.Kubernetes.Namespaces)
	v.interval(path+".interval", k.Interval, "5s")
	v.timeout(path+".timeout", k.Timeout)
	if k.MaxAnswer < 1<<16 {
		v.errorf(path+".maxAnswer", "%s is too little for any answer; write such as 16MiB", k.MaxAnswer)
	}
}

func (m *Istiod) files(v *validator, path string) {
	v.secret(path+".tokenFile", m.TokenFile)
	v.kubeconfig(path+".mapping.kubernetes.kubeconfig", m.Mapping.Kubernetes.Kubeconfig)
	v.certificates(path+".tls", m.TLS)
	if s := m.Import.TLS; s != nil {
		v.certificates(path+".import.tls", &TLS{CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile})
	}
}
