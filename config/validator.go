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

// A validator gathers errors. What a key is in itself, its tags say; each section
// checks how its keys go together.
type validator struct {
	*Config
	rules map[string]rule // by the tag check
	errs  Errors
}

// A checker checks how its keys go together.
type checker interface {
	validate(v *validator, path string)
}

// A fileChecker checks how the files that it names go together.
type fileChecker interface {
	files(v *validator, path string)
}

func (v *validator) errorf(path, format string, args ...any) {
	v.errs = append(v.errs, v.ErrorAt(path, format, args...))
}

// walk visits a value and all that it holds. A list hands its field on to its elements.
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
			entry.need = "write what is meant, or leave the entry out"
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

// value checks a value by its type and its tags. A text may be empty if it has no
// default.
func (v *validator) value(path string, x reflect.Value, f field) {
	empty := x.IsZero() || x.Kind() == reflect.Slice && x.Len() == 0
	if empty && f.need != "" {
		v.errorf(path, "missing; %s", f.need)
	}
	switch value := x.Interface().(type) {
	case checker:
		value.validate(v, path)
	case netip.Prefix:
		if value != value.Masked() {
			v.errorf(path, "%s has bits beyond its length; did you mean %s?", value, value.Masked())
		}
	case Duration, Size, int:
		v.bound(path, x, f)
	case string:
		if !empty || f.def != "" {
			v.follow(path, value, f.check)
		}
	}
}

// bound checks a number by the tag check of its key.
func (v *validator) bound(path string, x reflect.Value, f field) {
	if b, ok := bounds()[f.check]; ok && x.Int() < b.least {
		v.errorf(path, "%v %s; write such as %s", x, b.wrong, f.def)
	}
}

func (v *validator) file(path string, x reflect.Value, f field) {
	if c, ok := reflect.TypeAssert[fileChecker](x); ok {
		c.files(v, path)
	}
	if x.Kind() == reflect.String && x.Len() > 0 {
		v.follow(path, x.String(), f.check)
	}
}

// A rule returns what is wrong with a text.
type rule func(text string) error

func (v *validator) follow(path, text, check string) {
	if follows := v.rules[check]; follows != nil {
		if err := follows(text); err != nil {
			v.errorf(path, "%v", err)
		}
	}
}

// A bound is the least value of a number, and what is wrong with less.
type bound struct {
	least int64
	wrong string
}

// bounds are those of the tag check.
func bounds() map[string]bound {
	return map[string]bound{
		"timeout":  {1, "leaves no time for an answer"},
		"interval": {1, "would never rest"},
		"session":  {1e9, "is shorter than any ensemble allows"},
		"answer":   {1 << 16, "is too little for any answer"},
		"count":    {0, "is less than nothing"},
		"room":     {1, "leaves room for nothing"},
		"workers":  {1, "cannot work"},
	}
}

// dnsLabel is a part of a name in DNS.
const dnsLabel = `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`

// The forms of texts. Kubernetes has those of namespaces, of keys of labels and of names
// of objects.
var (
	nameForm      = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)
	domainForm    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,62}(\.[a-zA-Z0-9][a-zA-Z0-9_-]{0,62})*$`)
	namespaceForm = regexp.MustCompile(`^` + dnsLabel + `$`)
	objectForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	labelForm     = regexp.MustCompile(`^(` + dnsLabel + `(\.` + dnsLabel + `)*/)?[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`)
	idForm        = regexp.MustCompile(`^[a-zA-Z0-9_-]{0,64}$`)
	groupForm     = regexp.MustCompile(`^[a-zA-Z0-9_.:-]{0,128}$`)
	plainForm     = regexp.MustCompile(`^[a-zA-Z0-9_.*-]*$`)
	pathForm      = regexp.MustCompile(`^(/[^/]+)+$`)
	keyForm       = regexp.MustCompile(`^[^:/? \t\n]*$`)
	protocolForm  = regexp.MustCompile(`^[a-z0-9+.-]*$`)
	variableForm  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	kindForm      = regexp.MustCompile(`^(nodes|pods|istio)$`)
)

// textRules are those of the tag check for what a text has to be.
func textRules() map[string]rule {
	test := func(passes func(string) bool, wrong string) rule {
		return func(text string) error {
			if passes(text) {
				return nil
			}
			return fmt.Errorf("%q %s", text, wrong)
		}
	}
	return map[string]rule{
		"name":      test(nameForm.MatchString, "is no name; use 1 to 63 of a-z, A-Z, 0-9, '.', '-' and '_', a letter or digit first"),
		"domain":    test(domainForm.MatchString, "is no domain; write it as in cluster.local"),
		"namespace": test(namespaceForm.MatchString, "is no namespace of Kubernetes; write such as shop, or leave it out for all"),
		"kind":      test(kindForm.MatchString, "is none of nodes, pods and istio"),
		"label":     test(labelForm.MatchString, "is no label of Kubernetes; write such as version"),
		"directory": test(filepath.IsAbs, "depends on where the bridge is started; write it from / on"),
		"id":        test(idForm.MatchString, "is no namespace id: letters, digits, - and _, at most 64; it is the id and not the name that the console shows"),
		"group":     test(groupForm.MatchString, "is no group of Nacos: letters, digits and - _ . :, at most 128"),
		"plain":     test(plainForm.MatchString, "is no plain name: letters, digits and - _ . only"),
		"path":      test(pathForm.MatchString, "is no ZooKeeper path; write it as in /dubbo"),
		"serviceKey": func(text string) error {
			if k, err := naming.ParseServiceKey(text); err != nil || k.Category != naming.Providers {
				return fmt.Errorf("%q is no service key of a provider; write it as providers:interface:version:group", text)
			}
			return nil
		},
		"key":      test(keyForm.MatchString, "holds one of : / ? or white space, which no service key can"),
		"protocol": test(protocolForm.MatchString, "is no protocol; write it in lower case, such as tri or dubbo"),
		"address":  test(isAddress, "is no address; write it as host:port"),
		"listener": test(isListener, "is no address to listen on; write it as host:port or :port"),
		"ip":       test(func(text string) bool { return net.ParseIP(text) != nil }, "is no IP address"),
		"identity": func(string) error { return nil }, // any but an empty one
		"url":      checkURL,
		"pattern": func(text string) error {
			_, err := naming.ParsePattern(text)
			return err
		},
	}
}

// fileRules are those of the tag check for what a file has to hold.
func fileRules() map[string]rule {
	advising := func(err error, advice string) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%w; %s", err, advice)
	}
	return map[string]rule{
		"certificates": checkCertificates,
		"secret": func(file string) error {
			_, err := ReadSecret(file)
			return advising(err, "put the secret there, or name another file")
		},
		"keys": func(file string) error {
			_, err := ReadKeys(file)
			return err
		},
		"kubeconfig": func(file string) error {
			_, err := os.ReadFile(file)
			return advising(err, "name a kubeconfig file that we may read")
		},
		"directory": func(file string) error {
			_, err := os.ReadDir(file)
			return advising(err, "make it, and let us write there")
		},
	}
}

func checkCertificates(file string) error {
	pem, err := os.ReadFile(file)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %s; put the certificates to trust there", file, reason(err))
	case !x509.NewCertPool().AppendCertsFromPEM(pem):
		return fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return nil
}

// keyPair checks the files of a certificate and its key.
func (v *validator) keyPair(path, certFile, keyFile string) {
	if certFile != "" && keyFile != "" {
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			v.errorf(path+".certFile", "%v; put a certificate and its key there in PEM", err)
		}
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

// isAddress reports whether an address to connect to is host:port.
func isAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && n > 0 && host != "" && !strings.Contains(host, "/")
}

// isListener reports whether an address to listen on is host:port or off, where the host
// may be empty.
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
		return errors.New("no http or https URL; write it as http://host:port")
	case u.User != nil:
		return errors.New("a secret does not belong in this file; write it to a file of its own and name that as passwordFile or tokenFile")
	}
	return nil
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
