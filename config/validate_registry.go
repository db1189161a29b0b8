package config

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func (v *validator) registry(path, name string, r Registry) {
	v.name(path, name, "is how bridges speak of it")
	kinds := 0
	if r.Istiod != nil {
		kinds++
		v.istiod(path+".istiod", r.Istiod)
	}
	if r.ZooKeeper != nil {
		kinds++
		v.zookeeper(path+".zookeeper", r.ZooKeeper)
	}
	if r.Nacos != nil {
		kinds++
		v.nacos(path+".nacos", r.Nacos)
	}
	if kinds != 1 {
		v.fault(path, "holds %d of istiod, zookeeper and nacos; it needs exactly one", kinds)
	}
	if t := r.Timing; t.Workers < 1 {
		v.fault(path+".timing.workers", "%d cannot work; write at least 1", t.Workers)
	} else if t.MaxQuiet < t.Quiet {
		v.fault(path+".timing.maxQuiet", "%s is shorter than quiet, %s", t.MaxQuiet, t.Quiet)
	}
	if t := r.Timing; t.RetryMin <= 0 || t.RetryMax < t.RetryMin {
		v.fault(path+".timing.retryMin", "%s to %s is no wait; retryMin is more than nothing and at most retryMax", t.RetryMin, t.RetryMax)
	}
	if r.Timing.Rate < 0 {
		v.fault(path+".timing.rate", "%d is less than nothing; 0 is no bound", r.Timing.Rate)
	}
	if r.Timing.Refresh <= 0 {
		v.fault(path+".timing.refresh", "%s would never rest; write such as 5m", r.Timing.Refresh)
	}
}

func (v *validator) istiod(path string, m *Istiod) {
	v.transport(path, m)
	if m.ID != "" {
		v.name(path+".id", m.ID, "")
	}
	if m.Node.Address != "" {
		if _, err := netip.ParseAddr(m.Node.Address); err != nil {
			v.fault(path+".node.address", "%q is no IP address", m.Node.Address)
		}
	}
	v.domain(path+".clusterDomain", m.ClusterDomain)
	v.mapping(path+".mapping", m)
	v.limits(path+".limits", m.Limits)
	v.imports(path+".import", m.Import)
}

func (v *validator) imports(path string, m Import) {
	v.domain(path+".suffix", m.Suffix)
	v.prefixes(path+".vips", []netip.Prefix{m.VIPs})
	v.prefixes(path+".allow", m.Allow)
	v.prefixes(path+".clients.networks", m.Clients.Networks)
	if t := m.TLS; t != nil {
		v.pair(path+".tls", [2]string{"certFile", t.CertFile}, [2]string{"keyFile", t.KeyFile})
		if t.CertFile == "" && t.KeyFile == "" {
			v.fault(path+".tls.certFile", "missing; the server needs a certificate of its own, with keyFile")
		}
	}
	if m.Rules != "" && !m.DataPlanes {
		v.fault(path+".rulesFile", "is followed by data planes only, and none are served; write dataPlanes: true, or leave it out")
	}
	if len(m.Clients.Names) > 0 && (m.TLS == nil || m.TLS.CAFile == "") {
		v.fault(path+".clients.names", "are those in clients' certificates, and without tls.caFile they need none; write tls: {caFile: …}")
	}
	for i, name := range m.Clients.Names {
		if name == "" {
			v.fault(path+".clients.names["+strconv.Itoa(i)+"]", "is empty; write a name that a certificate holds, such as spiffe://cluster.local/ns/istio-system/sa/istiod")
		}
	}
}

// transport checks that address, TLS and token go together.
func (v *validator) transport(path string, m *Istiod) {
	host, port := v.address(path+".address", m.Address)
	v.tls(path+".tls", m.TLS)
	switch {
	case m.TLS == nil && port == "15012":
		v.fault(path+".tls", "missing; istiod speaks TLS on 15012: write tls: {caFile: …}, or use 15010 for plaintext")
	case m.TLS != nil && port == "15010":
		v.fault(path+".tls", "istiod speaks plaintext on 15010; use 15012, or leave tls out")
	case m.TLS == nil && m.TokenFile != "" && !m.Insecure && !loopback(host):
		v.fault(path+".tokenFile", "the token would cross the network in plaintext; write tls: {caFile: …} and port 15012, or insecure: true")
	}
}

func (v *validator) mapping(path string, m *Istiod) {
	k := m.Mapping
	if k.From == "debug-xds" && m.TLS == nil {
		v.fault(path+".from", "istiod answers debug-xds over TLS only; write tls: {caFile: …} and port 15012, or from: debug-http")
	}
	if len(k.Addresses) > 0 && (k.From == "debug-xds" || k.From == "none") {
		v.fault(path+".addresses", "are read by debug-http only; leave them out, or write from: debug-http")
	}
	for i, a := range k.Addresses {
		v.address(path+".addresses["+strconv.Itoa(i)+"]", a)
	}
	if k.Interval <= 0 {
		v.fault(path+".interval", "%s would never rest; write such as 5s", k.Interval)
	}
	if k.Timeout <= 0 {
		v.fault(path+".timeout", "%s leaves no time for an answer; write such as 10s", k.Timeout)
	}
	if k.MaxAnswer < 1<<16 {
		v.fault(path+".maxAnswer", "%s is too little for any answer; write such as 16MiB", k.MaxAnswer)
	}
}

func (v *validator) zookeeper(path string, z *ZooKeeper) {
	if z.ID != "" {
		v.name(path+".id", z.ID, "")
	}
	v.ensemble(path+".servers", z.Servers)
	if z.SessionTimeout < 1e9 {
		v.fault(path+".sessionTimeout", "%s is shorter than any ensemble allows; write such as 30s", z.SessionTimeout)
	}
	if z.Timeout <= 0 {
		v.fault(path+".timeout", "%s leaves no time for an answer; write such as 10s", z.Timeout)
	}
	v.tls(path+".tls", z.TLS)
	v.pair(path, [2]string{"user", z.User}, [2]string{"passwordFile", z.PasswordFile})
	if z.TLS == nil && !z.Insecure && z.PasswordFile != "" && !Local(z.Servers) {
		v.fault(path+".passwordFile", "the password would cross the network in plaintext; write tls: {caFile: …}, or insecure: true")
	}
	if z.ACL != "open" && z.User == "" {
		v.fault(path+".acl", "%q is for a user of its own; write user and passwordFile, or acl: open", z.ACL)
	}
	v.limits(path+".limits", z.Limits)
}

// ensemble checks the servers of a ZooKeeper, of which the last may be followed
// by a chroot.
func (v *validator) ensemble(path string, servers []string) {
	if len(servers) == 0 {
		v.fault(path, "missing; such as [127.0.0.1:2181]")
	}
	for i, s := range servers {
		if i == len(servers)-1 {
			s, _, _ = strings.Cut(s, "/") // the chroot
		}
		v.address(path+"["+strconv.Itoa(i)+"]", s)
	}
}

// namespaceSigns is what a namespace id of Nacos consists of.
const namespaceSigns = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

func (v *validator) nacos(path string, n *Nacos) {
	if n.ID != "" {
		v.name(path+".id", n.ID, "")
	}
	v.nacosServers(path, n)
	if strings.Trim(n.Namespace, namespaceSigns) != "" || len(n.Namespace) > 64 {
		v.fault(path+".namespace", "%q is no namespace id: letters, digits, - and _, at most 64; it is the id and not the name that the console shows", n.Namespace)
	}
	v.tls(path+".tls", n.TLS)
	v.pair(path, [2]string{"username", n.Username}, [2]string{"passwordFile", n.PasswordFile})
	if n.TLS == nil && !n.Insecure && n.PasswordFile != "" && !Local(n.Servers) {
		v.fault(path+".passwordFile", "the password would cross the network in plaintext; write https:// servers and tls: {caFile: …}, or insecure: true")
	}
	if n.ListInterval <= 0 {
		v.fault(path+".listInterval", "%s would never rest; write such as 5s", n.ListInterval)
	}
	v.limits(path+".limits", n.Limits)
}

func (v *validator) nacosServers(path string, n *Nacos) {
	if len(n.Servers) == 0 {
		v.fault(path+".servers", `missing; such as ["http://127.0.0.1:8848"]`)
	}
	for i, s := range n.Servers {
		v.url(path+".servers["+strconv.Itoa(i)+"]", s)
	}
	for i, s := range n.Servers {
		switch secure := strings.HasPrefix(s, "https:"); {
		case secure && n.TLS == nil:
			v.fault(path+".tls", "missing; servers[%d] is https, and its gRPC port is read over TLS as well: write tls: {}, or tls: {caFile: …}", i)
		case !secure && n.TLS != nil:
			v.fault(path+".servers["+strconv.Itoa(i)+"]", "is plaintext, and tls is set; write it as https://host:port, or leave tls out")
		}
	}
}

func (v *validator) tls(path string, t *TLS) {
	if t != nil {
		v.pair(path, [2]string{"certFile", t.CertFile}, [2]string{"keyFile", t.KeyFile})
	}
}

// pair checks two keys that go together, each with its value.
func (v *validator) pair(path string, a, b [2]string) {
	if a[1] != "" && b[1] == "" {
		v.fault(path+"."+b[0], "missing; it goes together with %s", a[0])
	}
	if b[1] != "" && a[1] == "" {
		v.fault(path+"."+a[0], "missing; it goes together with %s", b[0])
	}
}

func (v *validator) limits(path string, l Limits) {
	if l.MaxReceive < 1<<16 {
		v.fault(path+".maxReceive", "%s is too little for any answer; write such as 64MiB", l.MaxReceive)
	}
	if l.MaxServices < 1 || l.MaxEndpoints < 1 || l.MaxBytes < 1 {
		v.fault(path, "maxServices, maxEndpoints and maxBytes each need room for something; leave them out for the defaults")
	}
}

// address checks a host:port to connect to and returns its parts.
func (v *validator) address(path, address string) (host, port string) {
	if address == "" {
		v.fault(path, "missing; write it as host:port")
		return "", ""
	}
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" || strings.Contains(host, "/") {
		v.fault(path, "%q is no address; write it as host:port", address)
	}
	return host, port
}

func (v *validator) url(path, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.fault(path, "no http or https URL; write it as http://host:port") // not the text: it may hold a secret
	case u.User != nil:
		v.fault(path, "a secret does not belong in this file; write it to a file of its own and name that as passwordFile or tokenFile")
	}
}

// listener checks a host:port to listen on, where the host may be empty.
func (v *validator) listener(path, address string) {
	if address == "off" {
		return
	}
	_, port, err := net.SplitHostPort(address)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		v.fault(path, "%q is no address to listen on; write it as host:port or :port", address)
	}
}

// admin checks the admin address, which must not be reached from elsewhere
// unless whoever does has to show who they are.
func (v *validator) admin(at string, a Admin) {
	path, address := at+".address", a.Address
	v.tls(at+".tls", a.TLS)
	switch {
	case a.TLS != nil && a.TLS.CertFile == "":
		v.fault(at+".tls.certFile", "missing; the API needs a certificate of its own, with keyFile")
	case a.TLS != nil && a.TokenFile == "":
		v.fault(at+".tokenFile", "missing; it goes together with tls")
	case a.TLS == nil && a.TokenFile != "":
		v.fault(at+".tls", "missing; the token would cross the network in plaintext")
	}
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		if !strings.HasPrefix(socket, "/") {
			v.fault(path, "%q is no socket; write it as unix:/path", address)
		}
		return
	}
	v.listener(path, address)
	if host, _, err := net.SplitHostPort(address); err == nil && !loopback(host) && a.TLS == nil {
		v.fault(path, "%q can be reached from other machines, and the status API asks for no password without tls and tokenFile; set them, or write 127.0.0.1:port or unix:/path", address)
	}
}

func (v *validator) domain(path, domain string) {
	for label := range strings.SplitSeq(domain, ".") {
		if !validName(label) {
			v.fault(path, "%q is no domain; write it as in cluster.local", domain)
			return
		}
	}
}

// Local reports whether all servers, each host:port or a URL, are this machine.
func Local(servers []string) bool {
	return !slices.ContainsFunc(servers, func(s string) bool {
		if u, err := url.Parse(s); err == nil && u.Host != "" {
			s = u.Host
		}
		host, _, err := net.SplitHostPort(s)
		if err != nil {
			host = s
		}
		return !loopback(host)
	})
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
