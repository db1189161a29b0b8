// Package config reads the one file that says what xds-bridge does. It is
// strict: every error of a file is reported at once, each with its place and
// what to do about it. It opens no connection and starts nothing.
package config

import (
	"net"
	"reflect"
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
//	need     on a key that has to be there: what to write, or what it is for
//	filled   on a list that means all if its key is missing: what to do if
//	         nothing is meant; a list that is written holds at least one
//	parts    what is made anew if the value changes: see Part; empty: as of the object;
//	         fixed if entries are found and recognised by it
//	check    what the value is, a key of bounds, textRules or fileRules
type Config struct {
	APIVersion string              `yaml:"apiVersion" default:"xds-bridge/v1" enum:"xds-bridge/v1" doc:"The version of this file's form."`
	Owner      string              `yaml:"owner" need:"it marks what this bridge may change and delete, and has to be unique per deployment" check:"name" doc:"Unique per deployment: marks what this bridge may change and delete."`
	OwnerKeys  string              `yaml:"ownerKeyFile" check:"keys" doc:"A file of keys, one on a line, that sign the marks: the first signs, and what any of them signed is ours. Marks are not signed if it is empty."`
	State      State               `yaml:"state" doc:"Where the last known sets are kept."`
	Replicas   Replicas            `yaml:"replicas" doc:"How several processes with this configuration share the work."`
	Registries map[string]Registry `yaml:"registries" need:"name at least the two that a bridge leads from and to" doc:"The registries, each under a name of your choice."`
	Bridges    []Bridge            `yaml:"bridges" need:"a bridge requires name, from, to and formats" doc:"What leads from one registry to another, in the order in which they win conflicts."`
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
	TokenFile string `yaml:"tokenFile" check:"secret" doc:"Holds the token that every request has to bear, with tls; read again each time."`
}

// Telemetry is the listener of probes and metrics.
type Telemetry struct {
	Address string `yaml:"address" default:":9902" check:"listener" doc:"host:port, or off."`
}

// Audit says where it is kept what people decide: approvals, denials, and what
// was adopted, released or purged by hand.
type Audit struct {
	File string `yaml:"file" doc:"A file that one line of JSON is appended to for each decision; empty leaves them to the log."`
}

// Reload says how a change of the file is applied.
type Reload struct {
	Interval Duration `yaml:"interval" default:"10s" doc:"Within what time a change of this file is applied; 0s leaves it to SIGHUP and the command reload. A file that is being written is left alone until it has been the same for a third of it."`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error" doc:"The least level that is logged."`
	Format string `yaml:"format" default:"text" enum:"text|json|gost" doc:"Lines of text or JSON on standard error, or through the logger of dubbogo/gost, where dubbo-go writes."`
}

// Validate returns everything that is wrong with the configuration beyond
// its form, each error with its path; it touches neither files nor network.
func (c *Config) Validate() Errors {
	v := &validator{Config: c, rules: textRules()}
	walk("", reflect.ValueOf(c), field{}, v.value)
	return v.errs.sorted()
}

// CheckFiles returns an error for every file that the configuration names and
// that cannot be used on this machine: secrets that are missing or empty, and
// certificates that are none.
func (c *Config) CheckFiles() Errors {
	v := &validator{Config: c, rules: fileRules()}
	walk("", reflect.ValueOf(c), field{}, v.file)
	return v.errs.sorted()
}

func (c *Config) validate(v *validator, _ string) {
	for name := range c.Registries {
		v.follow("registries."+name, name, "name")
	}
	seen := make(map[string]int)
	for i, b := range c.Bridges {
		if first, ok := seen[b.Name]; ok && b.Name != "" {
			v.errorf("bridges["+strconv.Itoa(i)+"].name", "duplicate bridge %q, first at bridges[%d]", b.Name, first)
		}
		seen[b.Name] = i
	}
	if c.Admin.Address == c.Telemetry.Address && c.Admin.Address != "off" {
		v.errorf("telemetry.address", "%q is admin.address too; give it another port", c.Admin.Address)
	}
	checkShared(v)
	checkMeetings(v)
}

// checkShared checks that bridges which share a source or an address agree on it.
func checkShared(v *validator) {
	readers, listeners := make(map[string]int), make(map[string]int) // the first bridge of each
	rules := make(map[string][]NameRule)                             // of the bridges before, by source
	for i, b := range v.Bridges {
		path := "bridges[" + strconv.Itoa(i) + "]"
		if j, ok := listeners[b.Listen]; ok && b.Listen != "" && v.Bridges[j].To != b.To {
			v.errorf(path+".listen", "bridges[%d] listens there for %q; each mesh must have an address of its own", j, v.Bridges[j].To)
		} else if !ok {
			listeners[b.Listen] = i
		}
		b.validateNames(v, path, rules[b.From])
		if v.Registries[b.From].Settings().Mesh != nil { // whose hosts have the names that any bridge gives them
			rules[b.From] = append(rules[b.From], b.Names...)
		}
		j, ok := readers[b.From]
		if !ok {
			readers[b.From] = i
			continue
		}
		read, first := b.Select, v.Bridges[j].Select
		if v.Registries[b.From].Settings().Mesh != nil && (read.SkipMutualTLS != first.SkipMutualTLS || !slices.Equal(read.Allow, first.Allow)) {
			v.errorf(path+".select", "allow and skipMutualTLS differ from bridges[%d], which reads %q too; "+
				"in this version all bridges that read one mesh have to agree", j, b.From)
		}
	}
}

// validate checks the admin address: from other machines it may be used by TLS and with
// a token alone.
func (a Admin) validate(v *validator, at string) {
	path, address := at+".address", a.Address
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
	v.follow(path, address, "listener")
	if host, _, err := net.SplitHostPort(address); err == nil && !loopback(host) && a.TLS == nil {
		v.errorf(path, "%q is open to other machines, and the status API asks for no password without tls and tokenFile; set them, or write 127.0.0.1:port or unix:/path", address)
	}
}
