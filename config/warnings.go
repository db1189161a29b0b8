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

// Warnings returns what is allowed and worth a second thought, each with its
// path, as Validate does with errors.
func (c *Config) Warnings() Errors {
	v := &validator{Config: c}
	walk("", reflect.ValueOf(c), field{}, v.protocol)
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
			v.errorf(path+".guard.share", "0 holds nothing, however much is lost; write such as 0.3, or mode: off if that is meant")
		}
		for j, o := range c.Bridges[:i] {
			if b.sameAs(o) {
				v.errorf(path, "writes the same as bridges[%d] %q, which wins each conflict; distinguish them by select, or leave one out", j, o.Name)
			}
		}
	}
	return v.errs.sorted()
}

// sameAs reports whether two bridges lead the same services to the same places.
func (b Bridge) sameAs(o Bridge) bool {
	return b.From == o.From && b.To == o.To && b.Listen == o.Listen && reflect.DeepEqual(b.Formats, o.Formats) && reflect.DeepEqual(b.Select, o.Select)
}

// protocol warns of a protocol that no framework knows but for a slip.
func (v *validator) protocol(path string, x reflect.Value, f field) {
	if f.check != "protocol" {
		return
	}
	if near := misspelled(x.String()); near != "" {
		v.errorf(path, "%q is a protocol that no framework knows; did you mean %q?", x, near)
	}
}

// misspelled returns the known protocol that is close to a text; empty if the text is
// known, or is like none.
func misspelled(text string) string {
	known := []string{"dubbo", "tri", "rest", "grpc", "http", "https", "thrift", "tcp", "rmi", "hessian", "jsonrpc", "webservice"}
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

// Exposure is what whoever reaches an address may do there.
type Exposure struct{ What, Remedy string }

// Exposed returns what others than this machine may do at an address at which
// a mesh is served.
func (c *Config) Exposed(mesh, listen string) []Exposure {
	m, path := c.Registries[mesh].Istiod.Import, "registries."+mesh+".istiod.import"
	host, _, err := net.SplitHostPort(listen)
	if err != nil || loopback(host) {
		return nil
	}
	var all []Exposure
	if m.TLS == nil {
		all = append(all, Exposure{
			"clients are served in plaintext, which whoever is in between reads and changes",
			"write " + path + ".tls, and have clients speak TLS: an istiod by tlsSettings of mode SIMPLE in its configSources (Istio 1.26 and later), a data plane by its bootstrap",
		})
	}
	if n := m.Clients.Networks; (m.TLS == nil || m.TLS.CAFile == "") && (len(n) == 0 || slices.ContainsFunc(n, allowsAll)) {
		all = append(all, Exposure{
			"whoever reaches it may read every service that is served",
			"write the networks of clients into " + path + ".clients.networks",
		})
	}
	return all
}

func allowsAll(p netip.Prefix) bool { return p.Bits() == 0 }
