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

// Open starts a client of the registry that a URL names, so that which registry an
// application uses is one line of its configuration:
//
//	mesh://istiod.istio-system.svc:15010?name=greeter-1&namespace=shop&ip=10.0.0.1
//	mesh+tls://istiod.istio-system.svc:15012?name=greeter-1&namespace=shop&ip=10.0.0.1&ca=/etc/istio/ca.pem&token=/var/run/secrets/tokens/istio-token
//	zookeeper://10.1.0.1:2181,10.1.0.2:2181/dubbo?identity=greeter-1
//	nacos://10.2.0.1:8848,10.2.0.2:8848/namespace?group=DEFAULT_GROUP&identity=greeter-1
//	zookeeper+tls://10.1.0.1:2281?ca=/etc/zookeeper/ca.pem&format=kratos
//
// Identity, name, namespace and ip that are left out are those of POD_NAME,
// POD_NAMESPACE and POD_IP, or else, but for the namespace, of this machine and process.
// docs/plugins.md lists the parameters; one that is not known is an error. Like New it
// returns at once, whatever the registry is like.
//
// The kinds are those of the packages mesh, zookeeper and nacos that a program links, or
// all of them, as package all has them:
//
//	c, err := client.Open(url, client.Options{Log: log}, zookeeper.Kind())
func Open(text string, o Options, kinds ...Kind) (*Client, error) {
	b, err := backendOf(text, o, kinds)
	if err != nil {
		return nil, err
	}
	return New(b, o)
}

// Kind is a kind of registry that Open can open: that of package mesh, zookeeper or
// nacos.
type Kind struct {
	name string
	open func(*URL) (Backend, error)
}

// NewKind returns a kind of registry by the scheme of its URLs.
func NewKind(_ seam.Key, name string, open func(*URL) (Backend, error)) Kind { return Kind{name, open} }

func backendOf(text string, o Options, kinds []Kind) (Backend, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return Backend{}, fmt.Errorf("registry %q: want mesh, zookeeper or nacos, each also with +tls, and :// behind it", text)
	}
	rest, query, _ := strings.Cut(rest, "?")
	servers, path, _ := strings.Cut(rest, "/")
	values, err := url.ParseQuery(query)
	if err != nil {
		return Backend{}, fmt.Errorf("registry %s: %w", scheme, err)
	}
	if strings.Contains(servers, "@") {
		return Backend{}, fmt.Errorf("registry %s: servers: want host:port alone; a user is a parameter, and a password a file", naming.Quote(scheme))
	}
	name, secure := strings.CutSuffix(scheme, "+tls")
	at := slices.IndexFunc(kinds, func(k Kind) bool { return k.name == name })
	if at < 0 {
		return Backend{}, notLinked(scheme, kinds)
	}
	u := &URL{Servers: servers, Path: path, Log: o.Log, Format: o.Formats[name], values: values, known: make(map[string]bool)}
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

// notLinked returns why there is no kind for a scheme.
func notLinked(scheme string, kinds []Kind) error {
	if len(kinds) == 0 {
		return fmt.Errorf("registry %s: client.Open is given no kind of registry; give it that of package mesh, zookeeper or nacos, or all.Kinds()", naming.Quote(scheme))
	}
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, k.name)
	}
	slices.Sort(names)
	return fmt.Errorf("registry %s: not known; want one of %s, each also with +tls", naming.Quote(scheme), strings.Join(names, ", "))
}

// URL is that of a registry, whose kind reads its parameters one by one.
type URL struct {
	Servers, Path string
	TLS           *tlsfile.Files // nil: plaintext
	Format        string         // where the URL names none; empty: Dubbo's
	Log           *slog.Logger   // nil: none

	values   url.Values
	known    map[string]bool // the names of the parameters that are known
	problems []error
}

// One reads a parameter that may be given once.
func (u *URL) One(name string) string {
	all := u.Many(name)
	if len(all) > 1 {
		u.Reject(name, errors.New("given more than once"))
	}
	return strings.Join(all, "")
}

// Many reads a parameter that may be given several times.
func (u *URL) Many(name string) []string {
	all := u.values[name]
	u.known[name] = true
	delete(u.values, name)
	return all
}

// Reject records what is wrong with a parameter; nil: nothing.
func (u *URL) Reject(name string, err error) {
	if err != nil {
		u.problems = append(u.problems, fmt.Errorf("%s: %w", name, err))
	}
}

// Duration reads one that is a duration; 0: it is not given.
func (u *URL) Duration(name string) time.Duration {
	text := u.One(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%s is negative", d)
	}
	u.Reject(name, err)
	return d
}

// Together refuses one of two parameters that is given without the other.
func (u *URL) Together(one, is, other, as string) {
	switch {
	case is != "" && as == "":
		u.Reject(other, fmt.Errorf("missing beside %s", one))
	case is == "" && as != "":
		u.Reject(one, fmt.Errorf("missing beside %s", other))
	}
}

// Flag reads one that is true or false.
func (u *URL) Flag(name string) bool {
	text := u.One(name)
	if text == "" {
		return false
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		u.Reject(name, fmt.Errorf("%s: want true or false", naming.Quote(text)))
	}
	return on
}

// Done returns what was wrong, parameters that nobody read included.
func (u *URL) Done() error {
	for _, name := range slices.Sorted(maps.Keys(u.values)) {
		u.Reject(naming.Quote(name), fmt.Errorf("no such parameter; want one of %s", strings.Join(slices.Sorted(maps.Keys(u.known)), ", ")))
	}
	return errors.Join(u.problems...)
}

// Identity returns that of this process.
func (u *URL) Identity() string {
	host, _ := os.Hostname()
	return cmp.Or(u.One("identity"), os.Getenv("POD_NAME"), fmt.Sprintf("%s-%d", host, os.Getpid()))
}
