package config

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"os"
	"slices"
	"strconv"
)

// Validate returns everything that is wrong with the configuration beyond
// its form, each error with its path; it touches neither files nor network.
func (c *Config) Validate() Errors {
	v := &validator{places: c.places}
	v.name("owner", c.Owner, "marks what this bridge may change and delete, and has to be unique per deployment")
	if len(c.Registries) == 0 {
		v.errorf("registries", "missing; name at least the two that a bridge leads from and to")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Registries)) {
		v.registry("registries."+name, name, c.Registries[name])
	}
	if len(c.Bridges) == 0 {
		v.errorf("bridges", "missing; a bridge needs name, from, to and formats")
	}
	seen := make(map[string]int)
	for i, b := range c.Bridges {
		path := "bridges[" + strconv.Itoa(i) + "]"
		if first, ok := seen[b.Name]; ok && b.Name != "" {
			v.errorf(path+".name", "duplicate bridge %q, first at bridges[%d]", b.Name, first)
		}
		seen[b.Name] = i
		v.bridge(path, b, c.Registries)
	}
	v.replicas(c)
	v.meetings(c.Bridges, c.Registries)
	v.listener("telemetry.address", c.Telemetry.Address)
	v.admin("admin", c.Admin)
	return v.errs
}

// validator gathers errors.
type validator struct {
	places places
	errs   Errors
}

func (v *validator) errorf(path, format string, args ...any) {
	v.errs = append(v.errs, v.places.errorAt(path, format, args...))
}

// name checks a name that becomes a part of marks, paths and metrics.
func (v *validator) name(path, name, purpose string) {
	switch {
	case name == "":
		v.errorf(path, "missing; it %s", purpose)
	case !validName(name):
		v.errorf(path, "%q is no name; use 1 to 63 of a-z, A-Z, 0-9, '.', '-' and '_', a letter or digit first", name)
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
