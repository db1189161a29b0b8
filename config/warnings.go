package config

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// Warnings returns what is allowed and worth a second thought, each with its
// path, as Validate does with faults.
func (c *Config) Warnings() Faults {
	var all Faults
	told := make(map[[2]string]bool)
	for i, b := range c.Bridges {
		to := c.Registries[b.To].Istiod
		if at := [2]string{b.To, b.Listen}; to != nil && !told[at] {
			told[at] = true
			for _, e := range c.Exposed(b.To, b.Listen) {
				all = append(all, c.Fault("bridges["+strconv.Itoa(i)+"].listen", "%q: %s; %s", b.Listen, e.What, e.Remedy))
			}
		}
	}
	return all.sorted()
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
			"istiod is served in plaintext, which whoever is in between reads and changes",
			"write " + path + ".tls, and tlsSettings of mode SIMPLE in istiod's configSources (Istio 1.26 and later)",
		})
	}
	if n := m.Clients.Networks; (m.TLS == nil || m.TLS.CAFile == "") && (len(n) == 0 || slices.ContainsFunc(n, takesAll)) {
		all = append(all, Exposure{
			"whoever reaches it may read every service that is served",
			"write the networks of istiods into " + path + ".clients.networks",
		})
	}
	return all
}

func takesAll(p netip.Prefix) bool { return p.Bits() == 0 }
