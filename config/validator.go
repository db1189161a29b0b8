package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// A validator gathers errors. Each section validates itself, with the checks of values
// that are here.
type validator struct {
	places places
	errs   Errors
}

func (v *validator) errorf(path, format string, args ...any) {
	v.errs = append(v.errs, v.places.errorAt(path, format, args...))
}

// name checks a name that is a part of marks, paths and metrics.
func (v *validator) name(path, name, purpose string) {
	switch {
	case name == "":
		v.errorf(path, "missing; it %s", purpose)
	case !validName(name):
		v.errorf(path, "%q is no name; use 1 to 63 of a-z, A-Z, 0-9, '.', '-' and '_', a letter or digit first", name)
	}
}

// optionalName checks a name that may be left out.
func (v *validator) optionalName(path, name string) {
	if name != "" {
		v.name(path, name, "")
	}
}

func validName(name string) bool {
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case i > 0 && (r == '.' || r == '-' || r == '_'):
		default:
			return false
		}
	}
	return len(name) > 0 && len(name) <= 63
}

func (v *validator) timeout(path string, d Duration) {
	if d <= 0 {
		v.errorf(path, "%s leaves no time for an answer; write such as 10s", d)
	}
}

func (v *validator) interval(path string, d Duration, example string) {
	if d <= 0 {
		v.errorf(path, "%s would never rest; write such as %s", d, example)
	}
}

// pair checks two keys that go together, each with its value.
func (v *validator) pair(path string, a, b [2]string) {
	if a[1] != "" && b[1] == "" {
		v.errorf(path+"."+b[0], "missing; it goes together with %s", a[0])
	}
	if b[1] != "" && a[1] == "" {
		v.errorf(path+"."+a[0], "missing; it goes together with %s", b[0])
	}
}

// address checks a host:port to connect to and returns its parts.
func (v *validator) address(path, address string) (host, port string) {
	if address == "" {
		v.errorf(path, "missing; write it as host:port")
		return "", ""
	}
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" || strings.Contains(host, "/") {
		v.errorf(path, "%q is no address; write it as host:port", address)
	}
	return host, port
}

func (v *validator) url(path, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.errorf(path, "no http or https URL; write it as http://host:port") // not the text: it may hold a secret
	case u.User != nil:
		v.errorf(path, "a secret does not belong in this file; write it to a file of its own and name that as passwordFile or tokenFile")
	}
}

// listener checks a host:port to listen on, where the host may be empty.
func (v *validator) listener(path, address string) {
	if address == "off" {
		return
	}
	_, port, err := net.SplitHostPort(address)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		v.errorf(path, "%q is no address to listen on; write it as host:port or :port", address)
	}
}

func (v *validator) domain(path, domain string) {
	for label := range strings.SplitSeq(domain, ".") {
		if !validName(label) {
			v.errorf(path, "%q is no domain; write it as in cluster.local", domain)
			return
		}
	}
}

// namespaces checks names of namespaces of Kubernetes.
func (v *validator) namespaces(path string, names []string) {
	for i, name := range names {
		if !isNamespace(name) {
			v.errorf(path+"["+strconv.Itoa(i)+"]", "%q is no namespace of Kubernetes; write such as shop, or leave it out for all", name)
		}
	}
}

func (v *validator) patterns(path string, patterns []string) {
	for i, p := range patterns {
		v.pattern(path+"["+strconv.Itoa(i)+"]", p)
	}
}

func (v *validator) pattern(path, pattern string) {
	if _, err := naming.ParsePattern(pattern); err != nil {
		v.errorf(path, "%v", err)
	}
}

func (v *validator) prefixes(path string, prefixes []netip.Prefix) {
	for i, p := range prefixes {
		if p != p.Masked() {
			v.errorf(path+"["+strconv.Itoa(i)+"]", "%s has bits beyond its length; did you mean %s?", p, p.Masked())
		}
	}
}

// protocol checks what is the scheme of a URL.
func (v *validator) protocol(path, protocol string) {
	for _, r := range protocol {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("+-.", r) {
			v.errorf(path, "%q is no protocol; write it in lower case, such as tri or dubbo", protocol)
			return
		}
	}
	if protocol == "" {
		v.errorf(path, "missing; such as tri or dubbo")
	}
}

func (v *validator) secret(path, file string) {
	if file == "" {
		return
	}
	if _, err := ReadSecret(file); err != nil {
		v.errorf(path, "%v; put the secret there, or name another file", err)
	}
}

func (v *validator) certificates(path string, t *TLS) {
	if t == nil {
		return
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			v.errorf(path+".caFile", "%s: %s; put the certificates to trust there", t.CAFile, reason(err))
		} else if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			v.errorf(path+".caFile", "%s holds no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" && t.KeyFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			v.errorf(path+".certFile", "%v; put a certificate and its key there in PEM", err)
		}
	}
}

func (v *validator) kubeconfig(path, file string) {
	if file == "" {
		return
	}
	if _, err := os.ReadFile(file); err != nil {
		v.errorf(path, "%v; name a kubeconfig file that we may read", err)
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
