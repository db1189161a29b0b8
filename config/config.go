// Package config reads and validates the configuration file of xds-bridge. It
// reports all errors of a file at once, each with its place and a remedy. It
// opens no connection and starts nothing.
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

// Config is the whole file. Keys, defaults and allowed values are defined only
// by the tags of its fields. The decoder, the JSON Schema and the reference
// page are derived from them.
//
//	yaml     the key
//	doc      one sentence for schema and reference
//	default  the value of a missing key, as it is written in the file
//	enum     the allowed values, separated by |; formats is the names of all formats
//	short    "true" on the field that a plain value sets when it is written instead of the object
//	need     on a required key: what to write, or what the key is for
//	filled   on a list whose absence means "all": what to do if "none" is meant;
//	         such a list must not be empty
//	parts    the parts that a change of the value restarts, see Part; without the tag those
//	         of the object; fixed if the bridge finds and recognises its entries by the value
//	check    the rule for the value, a key of bounds, textRules or fileRules
type Config struct {
	APIVersion string              `yaml:"apiVersion" default:"xds-bridge/v1" enum:"xds-bridge/v1" doc:"The version of the file format."`
	Owner      string              `yaml:"owner" need:"it marks what this bridge may change and delete, and has to be unique per deployment" check:"name" doc:"The name of this deployment, which marks every entry that it writes. Only entries with this mark are changed or deleted. Use the same owner on all replicas, and a different one in every other deployment."`
	OwnerKeys  string              `yaml:"ownerKeyFile" check:"keys" doc:"A file of keys, one per line, that sign the marks. The first key signs; a mark signed by any of them is accepted. Empty: marks are not signed."`
	State      State               `yaml:"state" doc:"Where served sets are stored."`
	Replicas   Replicas            `yaml:"replicas" doc:"How several replicas share the work."`
	Registries map[string]Registry `yaml:"registries" need:"name at least the two that a bridge leads from and to" doc:"The registries, each under a name that you choose."`
	Bridges    []Bridge            `yaml:"bridges" need:"a bridge requires name, from, to and formats" doc:"The bridges, each from one registry to another. If two bridges conflict, the earlier one wins."`
	Admin      Admin               `yaml:"admin" doc:"The status API."`
	Telemetry  Telemetry           `yaml:"telemetry" doc:"Probes and metrics."`
	Audit      Audit               `yaml:"audit" doc:"The record of operators' decisions."`
	Log        Log                 `yaml:"log" doc:"Logging."`
	Reload     Reload              `yaml:"reload" doc:"How a change of this file is applied while the process runs."`

	places places
}

// State says where the last known sets are kept.
type State struct {
	Dir string `yaml:"dir" doc:"A directory that the process can write to. Sets that are served into a mesh are stored here in addition to the registry that they came from."`
}

// Admin is the listener of the status API.
type Admin struct {
	Address   string `yaml:"address" default:"127.0.0.1:9901" doc:"A loopback host:port, unix:/path, or off. An address that other machines can reach requires tls and tokenFile."`
	TLS       *TLS   `yaml:"tls" doc:"TLS for the status API. The API uses certFile and keyFile; the commands that call it use caFile and serverName."`
	TokenFile string `yaml:"tokenFile" check:"secret" doc:"A file with the bearer token that every request must carry. Requires tls. Read for each request."`
}

// Telemetry is the listener of probes and metrics.
type Telemetry struct {
	Address string `yaml:"address" default:":9902" check:"listener" doc:"The host:port of /livez, /readyz and /metrics, or off."`
}

// Audit says where the decisions of operators are recorded: approvals,
// denials, and what was adopted, released or purged.
type Audit struct {
	File string `yaml:"file" doc:"A file to which each decision is appended as a line of JSON: approvals, denials, reloads, and entries adopted, released or purged. Empty: decisions are only logged."`
}

// Reload says how a change of the file is applied.
type Reload struct {
	Interval Duration `yaml:"interval" default:"10s" doc:"How soon a change of this file is applied. The file must first stay unchanged for a third of this time. 0s: only SIGHUP and the reload command apply changes."`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error" doc:"The lowest level that is logged."`
	Format string `yaml:"format" default:"text" enum:"text|json|gost" doc:"The log format. text and json are written to standard error; gost uses the logger of dubbogo/gost, as dubbo-go does."`
}

// Validate returns the errors of the decoded values, each with its path. It
// uses neither files nor network.
func (c *Config) Validate() Errors {
	v := &validator{Config: c, rules: textRules()}
	walk("", reflect.ValueOf(c), field{}, v.checkValue)
	return v.errs.sorted()
}

// CheckFiles returns an error for each named file that cannot be used on this
// machine: missing or empty secrets, and invalid certificates.
func (c *Config) CheckFiles() Errors {
	v := &validator{Config: c, rules: fileRules()}
	walk("", reflect.ValueOf(c), field{}, v.checkFile)
	return v.errs.sorted()
}

func (c *Config) validate(v *validator, _ string) {
	for name := range c.Registries {
		v.checkText("registries."+name, name, "name")
	}
	seen := make(map[string]int)
	for i, b := range c.Bridges {
		if first, ok := seen[b.Name]; ok && b.Name != "" {
			v.errorf("bridges["+strconv.Itoa(i)+"].name", "duplicate bridge %q, first at bridges[%d]", b.Name, first)
		}
		seen[b.Name] = i
	}
	if c.Admin.Address == c.Telemetry.Address && c.Admin.Address != "off" {
		v.errorf("telemetry.address", "%q is also admin.address; use another port", c.Admin.Address)
	}
	checkShared(v)
	checkMeetings(v)
}

// checkShared refuses bridges that share a source or a listen address and
// configure it differently.
func checkShared(v *validator) {
	readers, listeners := make(map[string]int), make(map[string]int) // the first bridge of each source and address
	rules := make(map[string][]NameRule)                             // of the earlier bridges, by source
	for i, b := range v.Bridges {
		path := "bridges[" + strconv.Itoa(i) + "]"
		if j, ok := listeners[b.Listen]; ok && b.Listen != "" && v.Bridges[j].To != b.To {
			v.errorf(path+".listen", "bridges[%d] already listens there for %q; give each mesh its own address",
				j, v.Bridges[j].To)
		} else if !ok {
			listeners[b.Listen] = i
		}
		b.validateNames(v, path, rules[b.From])
		if v.Registries[b.From].Settings().Mesh != nil { // name rules apply to a mesh, whichever bridge has them
			rules[b.From] = append(rules[b.From], b.Names...)
		}
		j, ok := readers[b.From]
		if !ok {
			readers[b.From] = i
			continue
		}
		read, first := b.Select, v.Bridges[j].Select
		differ := read.SkipMutualTLS != first.SkipMutualTLS || !slices.Equal(read.Allow, first.Allow)
		if v.Registries[b.From].Settings().Mesh != nil && differ {
			v.errorf(path+".select", "allow and skipMutualTLS must be the same as in bridges[%d], which also reads %q",
				j, b.From)
		}
	}
}

// validate checks the admin address. An address that other machines reach
// requires TLS and a token.
func (a Admin) validate(v *validator, at string) {
	path, address := at+".address", a.Address
	switch {
	case a.TLS != nil && a.TLS.CertFile == "":
		v.errorf(at+".tls.certFile", "missing; the API requires its own certificate, with keyFile")
	case a.TLS != nil && a.TokenFile == "":
		v.errorf(at+".tokenFile", "missing; it is required with tls")
	case a.TLS == nil && a.TokenFile != "":
		v.errorf(at+".tls", "missing; the token would cross the network in plaintext")
	}
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		if !strings.HasPrefix(socket, "/") {
			v.errorf(path, "must be unix:/path (got %q)", address)
		}
		return
	}
	v.checkText(path, address, "listener")
	if host, _, err := net.SplitHostPort(address); err == nil && !loopback(host) && a.TLS == nil {
		v.errorf(path, "%q is open to other machines, and the status API is not protected without tls and tokenFile; "+
			"set both, or write 127.0.0.1:port or unix:/path", address)
	}
}
