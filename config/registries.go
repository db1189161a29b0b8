package config

import "net/netip"

// Istiod is a mesh, reached through istiod.
type Istiod struct {
	Address       string  `yaml:"address" need:"true" doc:"istiod's xDS address as host:port: 15010 in plaintext, 15012 with TLS."`
	ID            string  `yaml:"id" doc:"The mesh's id in the path of an entry, which ends loops; the registry's name where it is empty. Deployments that share a mesh have to call it the same."`
	TLS           *TLS    `yaml:"tls" doc:"TLS to istiod; without it the connection is plaintext."`
	TokenFile     string  `yaml:"tokenFile" doc:"A service account token of audience istio-ca; read again when it changes."`
	Insecure      bool    `yaml:"insecure" doc:"Send the token over plaintext to other machines too."`
	Node          Node    `yaml:"node" doc:"Who the bridge says it is."`
	Mapping       Mapping `yaml:"mapping" doc:"Where the published service keys are read."`
	ExportAll     bool    `yaml:"exportAll" doc:"Subscribe to hosts that no key and no name rule asks for too."`
	Subsets       bool    `yaml:"subsets" doc:"Subscribe to subset clusters too, so that endpoints tell their subset."`
	ClusterDomain string  `yaml:"clusterDomain" default:"cluster.local" doc:"The domain of the mesh's Kubernetes services."`
	Limits        Limits  `yaml:"limits" doc:"What istiod may send."`
	Import        Import  `yaml:"import" doc:"How services of other registries appear in this mesh."`
}

// TLS says whom to trust and who we are.
type TLS struct {
	CAFile     string `yaml:"caFile" doc:"Certificates to trust as PEM; the system's where it is empty."`
	ServerName string `yaml:"serverName" doc:"The name the server's certificate has to hold; the address's host where it is empty."`
	CertFile   string `yaml:"certFile" doc:"Our certificate as PEM, with keyFile."`
	KeyFile    string `yaml:"keyFile" doc:"Our key as PEM, with certFile."`
}

// Node is who the bridge says it is to istiod.
type Node struct {
	Type      string `yaml:"type" default:"router" enum:"router|sidecar" doc:"A router gets the endpoints of headless services."`
	Name      string `yaml:"name" doc:"Unique per replica; the machine's name where it is empty."`
	Address   string `yaml:"address" doc:"Our IP address as istiod sees it; found out where it is empty."`
	Namespace string `yaml:"namespace" default:"istio-system" doc:"The root namespace, unless the debug API is opened to another."`
	Cluster   string `yaml:"cluster" default:"Kubernetes" doc:"istiod's id of the cluster we run in."`
}

// Mapping says where the published service keys are read.
type Mapping struct {
	From            string   `yaml:"from" default:"auto" enum:"auto|debug-xds|debug-http|none" doc:"debug-xds uses the xDS address and needs TLS; auto is debug-xds with tls and debug-http without; none leaves only name rules."`
	Addresses       []string `yaml:"addresses" doc:"For debug-http: host:port of every istiod replica; the endpoints of istiod's own service, or the xDS address's host, at 15014, then at 8080, where it is empty."`
	Interval        Duration `yaml:"interval" default:"5s" doc:"How often the keys are read."`
	Timeout         Duration `yaml:"timeout" default:"10s" doc:"How long one reading may take."`
	MaxAnswer       Size     `yaml:"maxAnswer" default:"16MiB" doc:"The largest answer that is read: the list of connections, or one client with all it watches. What is larger is unknown, and shown."`
	Grace           Duration `yaml:"grace" default:"10s" doc:"How long a key stays that was taken back while its connection lives."`
	LegacyKeys      bool     `yaml:"legacyKeys" doc:"Take service keys without a category and of the category provider too, as old clients publish them."`
	ConnectionGrace Duration `yaml:"connectionGrace" default:"5m" doc:"How long a key stays whose connection went."`
}

// Limits bound what a registry may send, and what is kept of it.
type Limits struct {
	MaxReceive   Size `yaml:"maxReceive" default:"64MiB" doc:"The largest answer that is read."`
	MaxServices  int  `yaml:"maxServices" default:"100000" doc:"Services that are taken in; at any of these bounds nothing more is, nothing is deleted, and status says so."`
	MaxEndpoints int  `yaml:"maxEndpoints" default:"1000000" doc:"Endpoints that are taken in."`
	MaxBytes     Size `yaml:"maxBytes" default:"128MiB" doc:"What all names, addresses and attributes together may take."`
}

// Import says how services of other registries appear in a mesh.
type Import struct {
	Namespace  string         `yaml:"namespace" default:"xds-bridge" doc:"The namespace of the hosts."`
	Suffix     string         `yaml:"suffix" default:"bridge.internal" doc:"What the hosts end in; nothing under it is exported."`
	VIPs       netip.Prefix   `yaml:"vips" default:"240.64.0.0/12" doc:"The network virtual addresses are taken from."`
	DataPlanes bool           `yaml:"dataPlanes" doc:"Serve data planes at the listen addresses of bridges into this mesh too: Envoy, and gRPC without a proxy."`
	Rules      string         `yaml:"rulesFile" doc:"With dataPlanes: Istio's DestinationRules and VirtualServices as YAML, by which data planes divide calls; read when the bridges into this mesh start, at a restart or a change of their configuration."`
	Keys       string         `yaml:"keys" default:"publish" enum:"publish|off" doc:"Whether the service keys of imported hosts are published through istiod, so that proxyless dubbo-go resolves them."`
	TLS        *ServerTLS     `yaml:"tls" doc:"TLS at the listen addresses of bridges into this mesh; without it istiod is served in plaintext. Files are read again for each connection."`
	Clients    Clients        `yaml:"clients" doc:"Who may connect to the listen addresses of bridges into this mesh."`
	Allow      []netip.Prefix `yaml:"allow" filled:"to let none in remove the bridges into this mesh" doc:"Networks that endpoints may lie in; without it in any. Loopback, link-local, multicast and metadata services need select.allow besides."`
}

// ServerTLS says who we are to clients, and whom of them to trust.
type ServerTLS struct {
	CertFile string `yaml:"certFile" need:"true" doc:"Our certificate as PEM, for the name in istiod's configSources."`
	KeyFile  string `yaml:"keyFile" need:"true" doc:"Our key as PEM."`
	CAFile   string `yaml:"caFile" doc:"Certificates as PEM: a client needs one that they sign. istiod itself has none for this, so that it then needs a proxy before it; empty asks for none."`
}

// Clients says who may connect.
type Clients struct {
	Networks []netip.Prefix `yaml:"networks" filled:"to let none in remove the bridges into this mesh" doc:"Networks that clients may connect from; without it from all."`
	Names    []string       `yaml:"names" filled:"to let none in remove the bridges into this mesh" doc:"With tls.caFile: DNS names, URIs or IP addresses of which a client's certificate has to hold one; without it each that is trusted may connect."`
}

// ZooKeeper is a ZooKeeper ensemble.
type ZooKeeper struct {
	Servers        []string `yaml:"servers" need:"true" doc:"The ensemble, each as host:port; a chroot may follow the last, as in zk2:2181/app."`
	ID             string   `yaml:"id" doc:"The registry's id in the path of an entry, which ends loops; where it is empty the one that the registry keeps of itself, which the first bridge makes."`
	SessionTimeout Duration `yaml:"sessionTimeout" default:"30s" doc:"How long the ensemble keeps our session when we are away."`
	Timeout        Duration `yaml:"timeout" default:"10s" doc:"How long one call may take."`
	TLS            *TLS     `yaml:"tls" doc:"TLS to the ensemble; without it the connection is plaintext."`
	User           string   `yaml:"user" doc:"The user of digest authentication, with passwordFile."`
	PasswordFile   string   `yaml:"passwordFile" doc:"Holds the user's password; read again when it changes."`
	Insecure       bool     `yaml:"insecure" doc:"Send the password over plaintext to other machines too."`
	ACL            string   `yaml:"acl" default:"open" enum:"open|read-only|private" doc:"Who may touch what we write: everyone, our user with others reading, or our user alone."`
	Lifetime       string   `yaml:"lifetime" default:"persistent" enum:"persistent|session" doc:"Whether entries outlive the bridge or go with its session."`
	Limits         Limits   `yaml:"limits" doc:"What the ensemble may send."`
}

// Nacos is a Nacos cluster.
type Nacos struct {
	Servers      []string `yaml:"servers" need:"true" doc:"The servers, each as http://host:port or https://host:port."`
	ID           string   `yaml:"id" doc:"The registry's id in the path of an entry, which ends loops; where it is empty the one that the registry keeps of itself, which the first bridge makes."`
	Namespace    string   `yaml:"namespace" doc:"The namespace id; empty is public."`
	Username     string   `yaml:"username" doc:"The user, with passwordFile."`
	PasswordFile string   `yaml:"passwordFile" doc:"Holds the user's password; read again when it changes."`
	Insecure     bool     `yaml:"insecure" doc:"Send the password over plaintext to other machines too."`
	TLS          *TLS     `yaml:"tls" doc:"TLS to the cluster; without it the connection is plaintext."`
	ListInterval Duration `yaml:"listInterval" default:"5s" doc:"How often the names of all services are listed."`
	Limits       Limits   `yaml:"limits" doc:"What the cluster may send."`
}
