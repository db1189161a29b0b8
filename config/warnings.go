package config

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Warnings returns the settings that are valid but probably not meant, each with
// its path.
func (c *Config) Warnings() Errors {
	v := &validator{Config: c}
	walk("", reflect.ValueOf(c), field{}, v.warnProtocol)
	warned := make(map[[2]string]bool)
	for i, b := range c.Bridges {
		path := "bridges[" + strconv.Itoa(i) + "]"
		to := c.Registries[b.To].Istiod
		if at := [2]string{b.To, b.Listen}; to != nil && !warned[at] {
			warned[at] = true
			for _, e := range c.Exposed(b.To, b.Listen) {
				v.errorf(path+".listen", "%q: %s; %s", b.Listen, e.What, e.Remedy)
			}
		}
		if b.Guard.Share == 0 && b.Guard.Mode != "off" {
			v.errorf(path+".guard.share", "0 holds no deletion, however much is lost; "+
				"write a share such as 0.3, or mode: off if that is meant")
		}
		for j, o := range c.Bridges[:i] {
			if b.sameAs(o) {
				v.errorf(path, "writes the same entries as bridges[%d] %q, which wins each conflict; "+
					"distinguish the bridges by select, or leave one out", j, o.Name)
			}
		}
	}
	return v.errs.sorted()
}

// sameAs reports whether two bridges write the same services to the same places.
func (b Bridge) sameAs(o Bridge) bool {
	return b.From == o.From && b.To == o.To && b.Listen == o.Listen &&
		reflect.DeepEqual(b.Formats, o.Formats) && reflect.DeepEqual(b.Select, o.Select)
}

// warnProtocol warns of a protocol that looks like a misspelling of a known one.
func (v *validator) warnProtocol(path string, x reflect.Value, f field) {
	if f.check != "protocol" {
		return
	}
	if near := misspelled(x.String()); near != "" {
		v.errorf(path, "no framework knows the protocol %q; did you mean %q?", x, near)
	}
}

// misspelled returns the known protocol that is close to a text. It is empty for a
// known protocol and for a text that is close to none.
func misspelled(text string) string {
	known := []string{
		"dubbo", "tri", "rest", "grpc", "http", "https", "thrift", "tcp", "rmi", "hessian", "jsonrpc", "webservice",
	}
	if text == "" || slices.Contains(known, text) {
		return ""
	}
	for _, k := range known {
		if len(text) > 2 && naming.Distance(text, k) == 1 || strings.EqualFold(text, k) {
			return k
		}
	}
	return ""
}

// Exposure is one thing that everyone who reaches an address can do there.
type Exposure struct{ What, Remedy string }

// Exposed returns the exposures of an address at which a mesh is served. A
// loopback address has none.
func (c *Config) Exposed(mesh, listen string) []Exposure {
	m, path := c.Registries[mesh].Istiod.Import, "registries."+mesh+".istiod.import"
	host, _, err := net.SplitHostPort(listen)
	if err != nil || loopback(host) {
		return nil
	}
	var all []Exposure
	if m.TLS == nil {
		all = append(all, Exposure{
			"clients are served in plaintext, which others on the network path can read and change",
			"set " + path + ".tls, and let clients use TLS: an istiod by tlsSettings of mode SIMPLE in its configSources " +
				"(Istio 1.26 and later), a data plane by its bootstrap",
		})
	}
	anyNetwork := len(m.Clients.Networks) == 0 || slices.ContainsFunc(m.Clients.Networks, allowsAll)
	if (m.TLS == nil || m.TLS.CAFile == "") && anyNetwork {
		all = append(all, Exposure{
			"everyone who reaches it can read every service that is served",
			"set " + path + ".clients.networks to the networks of the clients",
		})
	}
	return all
}

func allowsAll(p netip.Prefix) bool { return p.Bits() == 0 }
