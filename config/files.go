package config

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"os"
	"slices"
)

// CheckFiles returns a fault for every file that the configuration names and
// that cannot be used on this machine: secrets that are missing or empty, and
// certificates that are none.
func (c *Config) CheckFiles() Faults {
	v := &validator{places: c.places}
	if c.OwnerKeys != "" {
		if _, err := ReadKeys(c.OwnerKeys); err != nil {
			v.fault("ownerKeyFile", "%v", err)
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
	return v.faults.sorted()
}

func (v *validator) secret(path, file string) {
	if file == "" {
		return
	}
	if _, err := ReadSecret(file); err != nil {
		v.fault(path, "%v; put the secret there, or name another file", err)
	}
}

func (v *validator) certificates(path string, t *TLS) {
	if t == nil {
		return
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			v.fault(path+".caFile", "%s: %s; put the certificates to trust there", t.CAFile, reason(err))
		} else if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			v.fault(path+".caFile", "%s holds no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" && t.KeyFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			v.fault(path+".certFile", "%v; put a certificate and its key there in PEM", err)
		}
	}
}
