// Package config reads the one file that says what xds-bridge does. It is
// strict: every error of a file is reported at once, each with its place and
// what to do about it. It opens no connection and starts nothing.
package config

import (
	"cmp"
	"net/netip"

	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/formats"
)

// Version is the apiVersion that this package reads.
const Version = "xds-bridge/v1"

// Config is the whole file. Field tags are the only place where keys,
// defaults and allowed words stand: the reader, the JSON Schema and the
// reference page all follow them.
//
//	yaml     the key
//	doc      one sentence for schema and reference
//	default  what a missing key means, as it would be written
//	enum     the allowed words, separated by |; formats stands for the names of all formats
//	short    "true" on the field that a plain word in place of the object sets
//	need     "true" where the key has to be there
//	filled   on a list that means all where its key is missing: what to do if
//	         nothing is meant; a list that is written holds at least one
type Config struct {
	APIVersion string              `yaml:"apiVersion" default:"xds-bridge/v1" enum:"xds-bridge/v1" doc:"The version of this file's form."`
	Owner      string              `yaml:"owner" need:"true" doc:"Unique per deployment: marks what this bridge may change and delete."`
	OwnerKeys  string              `yaml:"ownerKeyFile" doc:"A file of keys, one on a line, that sign the marks: the first signs, and what any of them signed is ours. Marks are not signed where it is empty."`
	State      State               `yaml:"state" doc:"Where the last known sets are kept."`
	Replicas   Replicas            `yaml:"replicas" doc:"How several processes with this configuration share the work."`
	Registries map[string]Registry `yaml:"registries" need:"true" doc:"The registries, each under a name of your choice."`
	Bridges    []Bridge            `yaml:"bridges" need:"true" doc:"The ways between registries, in the order in which they win conflicts."`
	Admin      Admin               `yaml:"admin" doc:"The status API, for this machine only."`
	Telemetry  Telemetry           `yaml:"telemetry" doc:"Probes and metrics."`
	Audit      Audit               `yaml:"audit" doc:"Where it is kept what people decide."`
	Log        Log                 `yaml:"log" doc:"What is logged, and how."`
	Reload     Reload              `yaml:"reload" doc:"How a change of this file is taken up."`

	places places
}

// State says where the last known sets are kept.
type State struct {
	Dir string `yaml:"dir" doc:"A directory this process may write. What is served into a mesh is kept there too, beside the registry that it came from."`
}

// Admin is the listener of the status API.
type Admin struct {
	Address   string `yaml:"address" default:"127.0.0.1:9901" doc:"A loopback host:port, unix:/path, or off; any other with tls and tokenFile."`
	TLS       *TLS   `yaml:"tls" doc:"certFile and keyFile are the API's own; caFile and serverName are what the verbs that ask it expect."`
	TokenFile string `yaml:"tokenFile" doc:"Holds the token that every request has to bear, with tls; read again each time."`
}

// Telemetry is the listener of probes and metrics.
type Telemetry struct {
	Address string `yaml:"address" default:":9902" doc:"host:port, or off."`
}

// Audit says where it is kept what people decide: approvals, denials, and what
// was adopted, released or purged by hand.
type Audit struct {
	File string `yaml:"file" doc:"A file that one line of JSON is appended to for each decision; empty leaves them to the log."`
}

// Reload says how a change of the file is taken up.
type Reload struct {
	Interval Duration `yaml:"interval" default:"10s" doc:"How often it is looked at whether this file changed; 0s leaves it to SIGHUP and the verb reload."`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error" doc:"The least level that is logged."`
	Format string `yaml:"format" default:"text" enum:"text|json|gost" doc:"Lines of text or JSON on standard error, or through the logger of dubbogo/gost, where dubbo-go writes."`
}

// Bridge is one way from a registry to another.
type Bridge struct {
	Name     string     `yaml:"name" need:"true" doc:"Unique in the file; a part of the mark on every entry."`
	From     string     `yaml:"from" need:"true" doc:"The registry that is read."`
	To       string     `yaml:"to" need:"true" doc:"The registry that is written."`
	Listen   string     `yaml:"listen" doc:"Into a mesh only: the address istiod's configSources names."`
	Formats  []Format   `yaml:"formats" need:"true" doc:"The formats in which services are stored: those of a mesh in each of them, those of a registry in the one they were read in. Into a mesh: the formats that are read."`
	Reads    []Format   `yaml:"reads" doc:"Between registries: the formats that are read, where they are not formats; each service is then stored in each of formats."`
	Select   Select     `yaml:"select" doc:"Which services and addresses pass."`
	Names    []NameRule `yaml:"names" doc:"What a mesh host provides where no service key is published; the first rule that fits counts, those of all bridges from one mesh in the order of the file."`
	Metadata Metadata   `yaml:"metadata" doc:"What of the attributes of services passes, and under which keys; followed in this order."`
	Policy   string     `yaml:"policy" default:"sync" enum:"sync|upsert-only|create-only|read-only" doc:"What the bridge may do to its entries."`
	Guard    Guard      `yaml:"guard" doc:"How reluctantly the bridge deletes."`
}

// Format is one form in which services are stored. In the file it is the
// name of the format, or an object. What stands empty is the format's own:
// see format.Descriptor.
type Format struct {
	Format   string         `yaml:"format" short:"true" need:"true" enum:"formats" doc:"The name of the format."`
	Root     string         `yaml:"root" doc:"The ZooKeeper path, which Dubbo's consumers call the group of their registry; empty is /dubbo for dubbo-interface, /services for dubbo-application and spring-cloud, /microservices for kratos, / for hertz and kitex, /plain for plain."`
	Metadata string         `yaml:"metadataRoot" default:"/dubbo" doc:"For dubbo-application: the ZooKeeper path that holds what applications provide and the mapping of interfaces to them."`
	Group    string         `yaml:"group" default:"DEFAULT_GROUP" doc:"The Nacos group."`
	Service  string         `yaml:"service" default:"*" doc:"How services are named in formats with plain names: the * stands for the name that a rule or the application gives. Dubbo's take none."`
	Join     bool           `yaml:"join" doc:"Put the endpoints of several services of a mesh together that have one plain name; otherwise the second is refused whole. Where a bridge from a registry writes too, they are put together."`
	Protocol string         `yaml:"protocol" doc:"The protocol where nothing else says it; empty is tri for Dubbo, http for spring-cloud and hertz, grpc for kratos and gozero, thrift for kitex, tcp for plain."`
	Rules    []ProtocolRule `yaml:"rules" doc:"The RPC protocol per host or port; the first rule that fits counts."`
	Tags     bool           `yaml:"tags" doc:"Write dubbo.tag, which hides a provider from consumers without that tag."`
}

// ProtocolRule says which RPC protocol a host or a port speaks.
type ProtocolRule struct {
	Host     string `yaml:"host" default:"*" doc:"A pattern of mesh hosts; * stands for any text."`
	Port     uint16 `yaml:"port" doc:"A service port; 0 stands for any."`
	Protocol string `yaml:"protocol" need:"true" doc:"The RPC protocol, such as tri or dubbo."`
}

// Select says which services and addresses pass a bridge.
type Select struct {
	Include       []string       `yaml:"include" filled:"to let none pass remove the bridge, or write exclude: ['*']" doc:"Patterns with at most one star: of mesh hosts; from another registry of interfaces, of service keys such as providers:org.acme.*, or of other native names. Without it all pass."`
	Exclude       []string       `yaml:"exclude" doc:"Patterns of what is left out all the same."`
	SkipMutualTLS bool           `yaml:"skipMutualTLS" doc:"Leave out endpoints whose mesh policy may refuse plaintext callers."`
	Allow         []netip.Prefix `yaml:"allow" doc:"Networks whose addresses pass although they are loopback, link-local, multicast or a metadata service."`
}

// NameRule says which interface a mesh host provides, or what a service is
// called in formats with plain names, or both.
type NameRule struct {
	Host      string `yaml:"host" need:"true" doc:"A pattern of mesh hosts, or for service of native names; * stands for any text."`
	Port      uint16 `yaml:"port" doc:"A service port; 0 stands for every one, such as an HTTP port beside that of the RPC."`
	Interface string `yaml:"interface" doc:"The interface the host provides; a * stands for what the star of host stands for."`
	Service   string `yaml:"service" doc:"The service's name in formats with plain names, a * as in interface; empty is the application's name. For dubbo-application the name of the application."`
	Version   string `yaml:"version" doc:"The version of the interface."`
	Group     string `yaml:"group" doc:"The group of the interface."`
	Protocol  string `yaml:"protocol" doc:"The RPC protocol; empty leaves that to the format."`
}

// Metadata says what of the attributes of services passes a bridge.
type Metadata struct {
	Keep   []string          `yaml:"keep" filled:"to let none pass write drop: ['*']" doc:"Patterns of the keys that pass; without it all do."`
	Drop   []string          `yaml:"drop" doc:"Patterns of the keys that do not pass all the same."`
	Rename map[string]string `yaml:"rename" doc:"A key, and what it is called from here on; where that exists already it stays, and status reports it."`
	Values []ValueRule       `yaml:"values" doc:"Values that others take the place of; the first rule that fits counts."`
	Add    map[string]string `yaml:"add" doc:"Keys and values that every service gets, in place of what it says itself."`
}

// ValueRule puts one value of a key in the place of another.
type ValueRule struct {
	Key  string `yaml:"key" need:"true" doc:"The key, by its new name."`
	From string `yaml:"from" doc:"The value that is replaced."`
	To   string `yaml:"to" doc:"The value in its place; empty leaves the key out."`
}

// Guard says how reluctantly a bridge deletes.
type Guard struct {
	Mode         string   `yaml:"mode" default:"enforce" enum:"enforce|warn|off" doc:"Whether deletions are held, only reported, or go."`
	Share        float64  `yaml:"share" default:"0.3" doc:"Deletions are held that would leave more than this part of a bridge's services without an endpoint, or take more than this part of its endpoints, within window. 0 and 1: none are."`
	AtLeast      int      `yaml:"atLeast" default:"10" doc:"Endpoints that do not count against share within window if the source withdraws them and others of their service stay."`
	Window       Duration `yaml:"window" default:"1h" doc:"How long a loss counts, and how long a host in a mesh stays without endpoints whose service is only found to be gone."`
	LastEndpoint Duration `yaml:"lastEndpoint" default:"30s" doc:"How long the last endpoint of a service waits."`
	Settle       Duration `yaml:"settle" default:"1m" doc:"How long an orphan waits once the source is complete: an entry that no reading shows and nobody withdrew."`
	Confirm      Duration `yaml:"confirm" default:"10m" doc:"How long after a hold began a reading over a new connection may confirm it; 0s: only approval ends it."`
}

// complete fills in what depends on the format.
func (c *Config) complete() {
	for i := range c.Bridges {
		for _, list := range [][]Format{c.Bridges[i].Formats, c.Bridges[i].Reads} {
			for j := range list {
				list[j] = list[j].completed()
			}
		}
	}
}

func (f Format) completed() Format {
	d := f.descriptor()
	f.Root, f.Protocol = cmp.Or(f.Root, d.Root), cmp.Or(f.Protocol, d.Protocol)
	return f
}

// descriptor returns the format that is meant; of one that is not known nothing
// but its zero value.
func (f Format) descriptor() format.Descriptor {
	d, _ := formats.Find(f.Format)
	return d
}

// Read returns the formats in which the registry that the bridge leads from
// is read, where it is no mesh.
func (b Bridge) Read() []Format {
	if len(b.Reads) > 0 {
		return b.Reads
	}
	return b.Formats
}
