package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// A validator collects errors. The tags of a key hold the rules for its value;
// each section checks the combination of its keys.
type validator struct {
	*Config
	rules map[string]rule // by the tag check
	errs  Errors
}

// A checker checks the combination of its keys.
type checker interface {
	validate(v *validator, path string)
}

// A fileChecker checks the combination of the files that it names.
type fileChecker interface {
	files(v *validator, path string)
}

func (v *validator) errorf(path, format string, args ...any) {
	v.errs = append(v.errs, v.ErrorAt(path, format, args...))
}

// walk visits a value and everything below it. The elements of a list are visited
// with the check of the list.
func walk(path string, x reflect.Value, f field, visit func(path string, x reflect.Value, f field)) {
	if x.Kind() == reflect.Pointer && x.IsNil() {
		return
	}
	visit(path, x, f)
	switch x = reflect.Indirect(x); x.Kind() {
	case reflect.Struct:
		for _, f := range fieldsOf(x.Type()) {
			walk(join(path, f.key), x.FieldByIndex(f.index), f, visit)
		}
	case reflect.Slice:
		entry := field{check: f.check}
		if f.check != "" {
			entry.need = "write a value, or leave the entry out"
		}
		for i := range x.Len() {
			walk(path+"["+strconv.Itoa(i)+"]", x.Index(i), entry, visit)
		}
	case reflect.Map:
		keys := x.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			walk(join(path, key.String()), x.MapIndex(key), field{}, visit)
		}
	default:
	}
}

// checkValue checks a value by its type and its tags. A text may be empty if it
// has no default.
func (v *validator) checkValue(path string, x reflect.Value, f field) {
	empty := x.IsZero() || x.Kind() == reflect.Slice && x.Len() == 0
	if empty && f.need != "" {
		v.errorf(path, "missing; %s", f.need)
	}
	switch value := x.Interface().(type) {
	case checker:
		value.validate(v, path)
	case netip.Prefix:
		if value != value.Masked() {
			v.errorf(path, "%s has bits beyond its prefix length; did you mean %s?", value, value.Masked())
		}
	case Duration, Size, int:
		v.checkBound(path, x, f)
	case string:
		if !empty || f.def != "" {
			v.checkText(path, value, f.check)
		}
	}
}

// checkBound checks a number by the tag check of its key.
func (v *validator) checkBound(path string, x reflect.Value, f field) {
	if b, ok := bounds()[f.check]; ok && x.Int() < b.minimum {
		v.errorf(path, "%s, such as %s (got %v)", b.demand, f.def, x)
	}
}

func (v *validator) checkFile(path string, x reflect.Value, f field) {
	if c, ok := reflect.TypeAssert[fileChecker](x); ok {
		c.files(v, path)
	}
	if x.Kind() == reflect.String && x.Len() > 0 {
		v.checkText(path, x.String(), f.check)
	}
}

// A rule returns an error for a text that it does not accept.
type rule func(text string) error

// checkText checks a text by the rule of a tag check. Other checks have no effect
// on it.
func (v *validator) checkText(path, text, check string) {
	if checkRule := v.rules[check]; checkRule != nil {
		if err := checkRule(text); err != nil {
			v.errorf(path, "%v", err)
		}
	}
}

// A bound is the minimum of a number, and the demand on it in an error.
type bound struct {
	minimum int64
	demand  string
}

// bounds returns the bounds of numbers by the tag check.
func bounds() map[string]bound {
	return map[string]bound{
		"timeout":  {1, "must be greater than 0"},
		"interval": {1, "must be greater than 0"},
		"session":  {1e9, "must be at least 1s"},
		"answer":   {1 << 16, "must be at least 64KiB"},
		"count":    {0, "must be at least 0"},
		"room":     {1, "must be greater than 0"},
		"workers":  {1, "must be greater than 0"},
	}
}

// dnsLabel is a label of a DNS name.
const dnsLabel = `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`

// The forms of texts. Those of namespaces, label keys and object names are the
// rules of Kubernetes.
var (
	nameForm      = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)
	domainForm    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,62}(\.[a-zA-Z0-9][a-zA-Z0-9_-]{0,62})*$`)
	namespaceForm = regexp.MustCompile(`^` + dnsLabel + `$`)
	objectForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	labelForm     = regexp.MustCompile(`^(` + dnsLabel + `(\.` + dnsLabel + `)*/)?` +
		`[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`)
	idForm       = regexp.MustCompile(`^[a-zA-Z0-9_-]{0,64}$`)
	groupForm    = regexp.MustCompile(`^[a-zA-Z0-9_.:-]{0,128}$`)
	plainForm    = regexp.MustCompile(`^[a-zA-Z0-9_.*-]*$`)
	pathForm     = regexp.MustCompile(`^(/[^/]+)+$`)
	keyForm      = regexp.MustCompile(`^[^:/? \t\n]*$`)
	protocolForm = regexp.MustCompile(`^[a-z0-9+.-]*$`)
	variableForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	kindForm     = regexp.MustCompile(`^(nodes|pods|istio)$`)
)

// textRules returns the rules for texts by the tag check.
func textRules() map[string]rule {
	require := func(accepts func(string) bool, demand string) rule {
		return func(text string) error {
			if accepts(text) {
				return nil
			}
			return fmt.Errorf("%s (got %q)", demand, text)
		}
	}
	return map[string]rule{
		"name": require(nameForm.MatchString,
			"must be 1 to 63 of a-z, A-Z, 0-9, '.', '-' and '_', starting with a letter or digit"),
		"domain": require(domainForm.MatchString, "must be a domain, such as cluster.local"),
		"namespace": require(namespaceForm.MatchString,
			"must be a Kubernetes namespace, such as shop; leave the list out for all"),
		"kind":      require(kindForm.MatchString, "must be nodes, pods or istio"),
		"label":     require(labelForm.MatchString, "must be the key of a Kubernetes label, such as version"),
		"directory": require(filepath.IsAbs, "must be an absolute path"),
		"id": require(idForm.MatchString,
			"must be a namespace id of at most 64 letters, digits, - and _, not the name that the console shows"),
		"group": require(groupForm.MatchString, "must be a Nacos group of at most 128 letters, digits and - _ . :"),
		"plain": require(plainForm.MatchString, "must have only letters, digits and - _ ."),
		"path":  require(pathForm.MatchString, "must be a ZooKeeper path, such as /dubbo"),
		"serviceKey": func(text string) error {
			if k, err := naming.ParseServiceKey(text); err != nil || k.Category != naming.Providers {
				return fmt.Errorf("must be the service key of a provider, as providers:interface:version:group (got %q)", text)
			}
			return nil
		},
		"key":      require(keyForm.MatchString, "must not contain : / ? or white space"),
		"protocol": require(protocolForm.MatchString, "must be a protocol in lower case, such as tri or dubbo"),
		"address":  require(isAddress, "must be host:port"),
		"listener": require(isListener, "must be host:port or :port"),
		"ip":       require(func(text string) bool { return net.ParseIP(text) != nil }, "must be an IP address"),
		"identity": func(string) error { return nil }, // a non-empty text
		"url":      checkURL,
		"pattern": func(text string) error {
			_, err := naming.ParsePattern(text)
			return err
		},
	}
}

// fileRules returns the rules for the contents of named files by the tag check.
func fileRules() map[string]rule {
	withRemedy := func(err error, remedy string) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return map[string]rule{
		"certificates": checkCertificates,
		"secret": func(file string) error {
			_, err := ReadSecret(file)
			return withRemedy(err, "put the secret there, or name another file")
		},
		"keys": func(file string) error {
			_, err := ReadKeys(file)
			return err
		},
		"kubeconfig": func(file string) error {
			_, err := os.ReadFile(file)
			return withRemedy(err, "name a readable kubeconfig file")
		},
		"directory": func(file string) error {
			_, err := os.ReadDir(file)
			return withRemedy(err, "create it, and grant the bridge write access")
		},
	}
}

func checkCertificates(file string) error {
	pem, err := os.ReadFile(file)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %s; put the certificates to trust there", file, withoutPath(err))
	case !x509.NewCertPool().AppendCertsFromPEM(pem):
		return fmt.Errorf("%s has no PEM certificate", file)
	}
	return nil
}

// checkKeyPair checks the files of a certificate and its key.
func (v *validator) checkKeyPair(path, certFile, keyFile string) {
	if certFile != "" && keyFile != "" {
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			v.errorf(path+".certFile", "%v; put a PEM certificate and its key there", err)
		}
	}
}

// checkPair checks that two keys, each given with its value, are set together.
func (v *validator) checkPair(path string, a, b [2]string) {
	if a[1] != "" && b[1] == "" {
		v.errorf(path+"."+b[0], "missing; it is required with %s", a[0])
	}
	if b[1] != "" && a[1] == "" {
		v.errorf(path+"."+a[0], "missing; it is required with %s", b[0])
	}
}

// isAddress reports whether an address to connect to has the form host:port.
func isAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && n > 0 && host != "" && !strings.Contains(host, "/")
}

// isListener reports whether an address to listen on is off or host:port, where the
// host may be empty.
func isListener(address string) bool {
	_, port, err := net.SplitHostPort(address)
	_, bad := strconv.ParseUint(port, 10, 16)
	return address == "off" || err == nil && bad == nil
}

// checkURL does not quote the text, which may hold a secret.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must be an http or https URL, such as http://host:port")
	case u.User != nil:
		return errors.New("a secret does not belong in this file; " +
			"write it to a separate file and name that file as passwordFile or tokenFile")
	}
	return nil
}

// Local reports whether all servers, each host:port or a URL, are on this machine.
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
