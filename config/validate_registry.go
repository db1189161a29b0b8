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
	all := r.sections()
	for _, s := range all {
		s.validate(v, path+"."+s.Settings().Kind)
	}
	if len(all) != 1 {
		keys := kinds()
		last := len(keys) - 1
		v.errorf(path, "holds %d of %s and %s; it needs exactly one", len(all), strings.Join(keys[:last], ", "), keys[last])
	}
	if t := r.Timing; t.Workers < 1 {
		v.errorf(path+".timing.workers", "%d cannot work; write at least 1", t.Workers)
	} else if t.MaxQuiet < t.Quiet {
		v.errorf(path+".timing.maxQuiet", "%s is shorter than quiet, %s", t.MaxQuiet, t.Quiet)
	}
	if t := r.Timing; t.RetryMin <= 0 || t.RetryMax < t.RetryMin {
		v.errorf(path+".timing.retryMin", "%s to %s is no wait; retryMin is more than nothing and at most retryMax", t.RetryMin, t.RetryMax)
	}
	if r.Timing.Rate < 0 {
		v.errorf(path+".timing.rate", "%d is less than nothing; 0 is no bound", r.Timing.Rate)
	}
	if r.Timing.Refresh <= 0 {
		v.errorf(path+".timing.refresh", "%s would never rest; write such as 5m", r.Timing.Refresh)
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
		v.errorf(path+"."+b[0], "missing; it goes together with %s", a[0])
	}
	if b[1] != "" && a[1] == "" {
		v.errorf(path+"."+a[0], "missing; it goes together with %s", b[0])
	}
}

func (v *validator) limits(path string, l Limits) {
	if l.MaxReceive < 1<<16 {
		v.errorf(path+".maxReceive", "%s is too little for any answer; write such as 64MiB", l.MaxReceive)
	}
	if l.MaxServices < 1 || l.MaxEndpoints < 1 || l.MaxBytes < 1 {
		v.errorf(path, "maxServices, maxEndpoints and maxBytes each need room for something; leave them out for the defaults")
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

// admin checks the admin address, which must not be reached from elsewhere
// unless whoever does has to show who they are.
func (v *validator) admin(at string, a Admin) {
	path, address := at+".address", a.Address
	v.tls(at+".tls", a.TLS)
	switch {
	case a.TLS != nil && a.TLS.CertFile == "":
		v.errorf(at+".tls.certFile", "missing; the API needs a certificate of its own, with keyFile")
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
		v.errorf(path, "%q can be reached from other machines, and the status API asks for no password without tls and tokenFile; set them, or write 127.0.0.1:port or unix:/path", address)
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
