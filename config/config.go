// Package config reads the one file that says what xds-bridge does. It is
// strict: every error of a file is reported at once, each with its place and
// what to do about it. It opens no connection and starts nothing.
package config

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Version is the apiVersion that this package reads.
const Version = "xds-bridge/v1"

// Config is the whole file. Field tags are the only place where keys,
// defaults and allowed values are: the reader, the JSON Schema and the
// reference page all follow them.
//
//	yaml     the key
//	doc      one sentence for schema and reference
//	default  what a missing key means, as it would be written
//	enum     the allowed values, separated by |; formats is the names of all formats
//	short    "true" on the field that a plain value in place of the object sets
//	need     "true" if the key has to be there
//	filled   on a list that means all if its key is missing: what to do if
//	         nothing is meant; a list that is written holds at least one
type Config struct {
	APIVersion string              `yaml:"apiVersion" default:"xds-bridge/v1" enum:"xds-bridge/v1" doc:"The version of this file's form."`
	Owner      string              `yaml:"owner" need:"true" doc:"Unique per deployment: marks what this bridge may change and delete."`
	OwnerKeys  string              `yaml:"ownerKeyFile" doc:"A file of keys, one on a line, that sign the marks: the first signs, and what any of them signed is ours. Marks are not signed if it is empty."`
	State      State               `yaml:"state" doc:"Where the last known sets are kept."`
	Replicas   Replicas            `yaml:"replicas" doc:"How several processes with this configuration share the work."`
	Registries map[string]Registry `yaml:"registries" need:"true" doc:"The registries, each under a name of your choice."`
	Bridges    []Bridge            `yaml:"bridges" need:"true" doc:"What leads from one registry to another, in the order in which they win conflicts."`
	Admin      Admin               `yaml:"admin" doc:"The status API, for this machine only."`
	Telemetry  Telemetry           `yaml:"telemetry" doc:"Probes and metrics."`
	Audit      Audit               `yaml:"audit" doc:"Where it is kept what people decide."`
	Log        Log                 `yaml:"log" doc:"What is logged, and how."`
	Reload     Reload              `yaml:"reload" doc:"How a change of this file is applied."`

	places places
}

// State says where the last known sets are kept.
type State struct {
	Dir string `yaml:"dir" doc:"A directory this process may write. What is served into a mesh is kept there too, beside the registry that it came from."`
}

// Admin is the listener of the status API.
type Admin struct {
	Address   string `yaml:"address" default:"127.0.0.1:9901" doc:"A loopback host:port, unix:/path, or off; any other with tls and tokenFile."`
	TLS       *TLS   `yaml:"tls" doc:"certFile and keyFile are the API's own; caFile and serverName are what the commands that ask it expect."`
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

// Reload says how a change of the file is applied.
type Reload struct {
	Interval Duration `yaml:"interval" default:"10s" doc:"How often it is looked at whether this file changed; 0s leaves it to SIGHUP and the command reload."`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error" doc:"The least level that is logged."`
	Format string `yaml:"format" default:"text" enum:"text|json|gost" doc:"Lines of text or JSON on standard error, or through the logger of dubbogo/gost, where dubbo-go writes."`
}

// Validate returns everything that is wrong with the configuration beyond
// its form, each error with its path; it touches neither files nor network.
func (c *Config) Validate() Errors {
	v := &validator{places: c.places}
	v.name("owner", c.Owner, "marks what this bridge may change and delete, and has to be unique per deployment")
	if len(c.Registries) == 0 {
		v.errorf("registries", "missing; name at least the two that a bridge leads from and to")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Registries)) {
		c.Registries[name].validate(v, name)
	}
	if len(c.Bridges) == 0 {
		v.errorf("bridges", "missing; a bridge requires name, from, to and formats")
	}
	seen := make(map[string]int)
	for i, b := range c.Bridges {
		path := "bridges[" + strconv.Itoa(i) + "]"
		if first, ok := seen[b.Name]; ok && b.Name != "" {
			v.errorf(path+".name", "duplicate bridge %q, first at bridges[%d]", b.Name, first)
		}
		seen[b.Name] = i
		b.validate(v, path, c.Registries)
	}
	c.Replicas.validate(v, c)
	checkMeetings(v, c.Bridges, c.Registries)
	v.listener("telemetry.address", c.Telemetry.Address)
	c.Admin.validate(v, "admin")
	return v.errs
}

// validate checks the admin address: from other machines it may be used by TLS and with
// a token alone.
func (a Admin) validate(v *validator, at string) {
	path, address := at+".address", a.Address
	a.TLS.validate(v, at+".tls")
	switch {
	case a.TLS != nil && a.TLS.CertFile == "":
		v.errorf(at+".tls.certFile", "missing; the API requires a certificate of its own, with keyFile")
	case a.TLS != nil && a.TokenFile == "":
		v.errorf(at+".tokenFile", "missing; it goes together with tls")
	case a.TLS == nil && a.TokenFile != "":
		v.errorf(at+".tls", "missing; the token would cross the network in plaintext")
	}
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		if !strings.HasPrefix(socket, "/") {
			v.errorf(path, "%q is no socket; write it as unix:/path", address)
		}
		return
	}
	v.listener(path, address)
	if host, _, err := net.SplitHostPort(address); err == nil && !loopback(host) && a.TLS == nil {
		v.errorf(path, "%q is open to other machines, and the status API asks for no password without tls and tokenFile; set them, or write 127.0.0.1:port or unix:/path", address)
	}
}

// CheckFiles returns an error for every file that the configuration names and
// that cannot be used on this machine: secrets that are missing or empty, and
// certificates that are none.
func (c *Config) CheckFiles() Errors {
	v := &validator{places: c.places}
	if c.OwnerKeys != "" {
		if _, err := ReadKeys(c.OwnerKeys); err != nil {
			v.errorf("ownerKeyFile", "%v", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Registries)) {
		r, path := c.Registries[name], "registries."+name
		for _, s := range r.sections() {
			s.files(v, path+"."+s.Settings().Kind)
		}
	}
	v.secret("admin.tokenFile", c.Admin.TokenFile)
	v.certificates("admin.tls", c.Admin.TLS)
	if k := c.Replicas.Lease.Kubernetes; k != nil {
		v.secret("replicas.lease.kubernetes.tokenFile", k.TokenFile)
		v.certificates("replicas.lease.kubernetes", &TLS{CAFile: k.CAFile})
	}
	return v.errs.sorted()
}
