package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// Open starts a client of the registry that a URL names, so that one line of an application's
// configuration selects its registry:
//
//	mesh://istiod.istio-system.svc:15010?name=greeter-1&namespace=shop&ip=10.0.0.1
//	mesh+tls://istiod.istio-system.svc:15012?name=greeter-1&namespace=shop&ip=10.0.0.1&ca=/etc/istio/ca.pem&token=/var/run/secrets/tokens/istio-token
//	zookeeper://10.1.0.1:2181,10.1.0.2:2181/dubbo?identity=greeter-1
//	nacos://10.2.0.1:8848,10.2.0.2:8848/namespace?group=DEFAULT_GROUP&identity=greeter-1
//	zookeeper+tls://10.1.0.1:2281?ca=/etc/zookeeper/ca.pem&format=kratos
//
// The defaults of identity, name, namespace and ip are POD_NAME, POD_NAMESPACE and POD_IP.
// Without these variables, all but the namespace default to values of this machine and
// process. docs/plugins.md lists the parameters; an unknown one is an error. Like New, Open
// returns at once, whether or not the registry is reachable.
//
// The kinds come from the packages mesh, zookeeper and nacos, as far as a program links them.
// Package all returns all of them:
//
//	c, err := client.Open(url, client.Options{Log: log}, zookeeper.Kind())
func Open(text string, o Options, kinds ...Kind) (*Client, error) {
	b, err := backendOf(text, o, kinds)
	if err != nil {
		return nil, err
	}
	return New(b, o)
}

// Kind is a kind of registry that Open can open. The packages mesh, zookeeper and nacos
// return one each.
type Kind struct {
	name string
	open func(*URL) (Backend, error)
}

// NewKind returns the kind of registry whose URLs have a scheme of this name.
func NewKind(_ seam.Key, name string, open func(*URL) (Backend, error)) Kind { return Kind{name, open} }

func backendOf(text string, o Options, kinds []Kind) (Backend, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return Backend{}, fmt.Errorf("registry %q: must begin with mesh://, zookeeper:// or nacos://, each also with +tls", text)
	}
	rest, query, _ := strings.Cut(rest, "?")
	servers, path, _ := strings.Cut(rest, "/")
	values, err := url.ParseQuery(query)
	if err != nil {
		return Backend{}, fmt.Errorf("registry %s: %w", scheme, err)
	}
	if strings.Contains(servers, "@") {
		return Backend{}, fmt.Errorf("registry %s: servers: must be host:port; "+
			"set a user and the file of its password as parameters",
			naming.Quote(scheme))
	}
	name, secure := strings.CutSuffix(scheme, "+tls")
	at := slices.IndexFunc(kinds, func(k Kind) bool { return k.name == name })
	if at < 0 {
		return Backend{}, notLinked(scheme, kinds)
	}
	u := &URL{
		Servers: servers, Path: path, Log: o.Log, Format: o.Formats[name],
		values: values, known: make(map[string]bool),
	}
	if secure {
		u.TLS = &tlsfile.Files{CA: u.One("ca"), Cert: u.One("cert"), Key: u.One("key"), ServerName: u.One("serverName")}
		u.Together("cert", u.TLS.Cert, "key", u.TLS.Key)
	}
	b, err := kinds[at].open(u)
	if err != nil {
		return Backend{}, fmt.Errorf("registry %s: %w", scheme, err)
	}
	return b, nil
}

// notLinked returns why no kind has a scheme.
func notLinked(scheme string, kinds []Kind) error {
	if len(kinds) == 0 {
		return fmt.Errorf("registry %s: client.Open got no kind of registry; "+
			"pass Kind() of package mesh, zookeeper or nacos, or all.Kinds()",
			naming.Quote(scheme))
	}
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, k.name)
	}
	slices.Sort(names)
	return fmt.Errorf("registry %s: unknown scheme; want one of %s, each also with +tls",
		naming.Quote(scheme), strings.Join(names, ", "))
}

// URL is the URL of a registry. The registry's kind reads its parameters one by one.
type URL struct {
	Servers, Path string
	TLS           *tlsfile.Files // nil: plaintext
	Format        string         // default of the format; empty: Dubbo's
	Log           *slog.Logger   // nil: none

	values   url.Values      // parameters that were not read yet
	known    map[string]bool // names of the parameters that were read
	problems []error
}

// One reads a parameter that may be set once.

// One reads a parameter that may be given once.
func (u *URL) One(name string) string {
	all := u.Many(name)
	if len(all) > 1 {
		u.Reject(name, errors.New("set more than once"))
	}
	return strings.Join(all, "")
}

// Many reads a parameter that may be set several times.
func (u *URL) Many(name string) []string {
	all := u.values[name]
	u.known[name] = true
	delete(u.values, name)
	return all
}

// Reject records an error of a parameter; nil is ignored.
func (u *URL) Reject(name string, err error) {
	if err != nil {
		u.problems = append(u.problems, fmt.Errorf("%s: %w", name, err))
	}
}

// Duration reads a parameter that is a duration; 0: it is not set.
func (u *URL) Duration(name string) time.Duration {
	text := u.One(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("must not be negative (got %s)", d)
	}
	u.Reject(name, err)
	return d
}

// Together rejects one of two parameters that is set without the other.
func (u *URL) Together(one, oneValue, other, otherValue string) {
	switch {
	case oneValue != "" && otherValue == "":
		u.Reject(other, fmt.Errorf("must be set together with %s", one))
	case oneValue == "" && otherValue != "":
		u.Reject(one, fmt.Errorf("must be set together with %s", other))
	}
}

// Flag reads a parameter that is true or false.
func (u *URL) Flag(name string) bool {
	text := u.One(name)
	if text == "" {
		return false
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		u.Reject(name, fmt.Errorf("must be true or false (got %s)", naming.Quote(text)))
	}
	return on
}

// Done returns the errors of all parameters. A parameter that was not read is one.
func (u *URL) Done() error {
	for _, name := range slices.Sorted(maps.Keys(u.values)) {
		known := slices.Sorted(maps.Keys(u.known))
		u.Reject(naming.Quote(name), fmt.Errorf("unknown parameter; want one of %s", strings.Join(known, ", ")))
	}
	return errors.Join(u.problems...)
}

// Identity returns the identity of this process.
func (u *URL) Identity() string {
	host, _ := os.Hostname()
	return cmp.Or(u.One("identity"), os.Getenv("POD_NAME"), fmt.Sprintf("%s-%d", host, os.Getpid()))
}
