package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	gxnet "github.com/dubbogo/gost/net"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
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
func Open(url string, o Options) (*Client, error) {
	b, err := backendOf(url, o)
	if err != nil {
		return nil, err
	}
	return New(b, o)
}

func backendOf(text string, o Options) (Backend, error) {
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
	u := &registryURL{servers: servers, path: path, values: values, log: o.Log, known: make(map[string]bool)}
	makers := map[string]func(files *tlsfile.Files) (Backend, error){
		"mesh":      u.mesh,
		"zookeeper": func(files *tlsfile.Files) (Backend, error) { return u.zooKeeper(files, o.Formats["zookeeper"]) },
		"nacos":     func(files *tlsfile.Files) (Backend, error) { return u.nacos(files, o.Formats["nacos"]) },
	}
	kind, secure := strings.CutSuffix(scheme, "+tls")
	maker := makers[kind]
	if maker == nil {
		return Backend{}, fmt.Errorf("registry %s: not known; want one of %s, each also with +tls",
			naming.Quote(scheme), strings.Join(slices.Sorted(maps.Keys(makers)), ", "))
	}
	var files *tlsfile.Files
	if secure {
		files = &tlsfile.Files{CA: u.one("ca"), Cert: u.one("cert"), Key: u.one("key"), ServerName: u.one("serverName")}
		u.together("cert", files.Cert, "key", files.Key)
	}
	b, err := maker(files)
	if err != nil {
		return Backend{}, fmt.Errorf("registry %s: %w", scheme, err)
	}
	return b, nil
}

// registryURL is a URL of which the parameters are read one by one.
type registryURL struct {
	servers, path string
	values        url.Values
	known         map[string]bool // the names of the parameters that are known
	log           *slog.Logger
	problems      []error
}

// one reads a parameter that may be given once.
func (u *registryURL) one(name string) string {
	all := u.many(name)
	if len(all) > 1 {
		u.reject(name, errors.New("given more than once"))
	}
	return strings.Join(all, "")
}

func (u *registryURL) many(name string) []string {
	all := u.values[name]
	u.known[name] = true
	delete(u.values, name)
	return all
}

func (u *registryURL) reject(name string, err error) {
	if err != nil {
		u.problems = append(u.problems, fmt.Errorf("%s: %w", name, err))
	}
}

func (u *registryURL) duration(name string) time.Duration {
	text := u.one(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%s is negative", d)
	}
	u.reject(name, err)
	return d
}

// together refuses one of two parameters that is given without the other.
func (u *registryURL) together(one, is, other, as string) {
	switch {
	case is != "" && as == "":
		u.reject(other, fmt.Errorf("missing beside %s", one))
	case is == "" && as != "":
		u.reject(one, fmt.Errorf("missing beside %s", other))
	}
}

func (u *registryURL) flag(name string) bool {
	text := u.one(name)
	if text == "" {
		return false
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		u.reject(name, fmt.Errorf("%s: want true or false", naming.Quote(text)))
	}
	return on
}

// done returns what was wrong, parameters that nobody read included.
func (u *registryURL) done() error {
	for _, name := range slices.Sorted(maps.Keys(u.values)) {
		u.reject(naming.Quote(name), fmt.Errorf("no such parameter; want one of %s", strings.Join(slices.Sorted(maps.Keys(u.known)), ", ")))
	}
	return errors.Join(u.problems...)
}

func (u *registryURL) mesh(files *tlsfile.Files) (Backend, error) {
	host, _ := os.Hostname()
	ip, _ := gxnet.GetLocalIP()
	o := MeshOptions{
		Address:     u.servers,
		Credentials: ads.Credentials{TokenFile: u.one("token"), Insecure: u.flag("insecure")},
		Identity: ads.Identity{
			Name: cmp.Or(u.one("name"), os.Getenv("POD_NAME"), host), Namespace: cmp.Or(u.one("namespace"), os.Getenv("POD_NAMESPACE")),
			IP: cmp.Or(u.one("ip"), os.Getenv("POD_IP"), ip), Domain: u.one("domain"), Cluster: u.one("cluster"),
		},
		DebugAddresses: u.many("debug"), Interval: u.duration("interval"), Log: u.log,
	}
	if u.path != "" {
		u.reject("path", errors.New("a mesh has none"))
	}
	if o.Identity.Namespace == "" {
		u.reject("namespace", errors.New("missing; write namespace=, or set $POD_NAMESPACE"))
	}
	for _, at := range o.DebugAddresses {
		if host, port, err := net.SplitHostPort(at); err != nil || host == "" || port == "" {
			u.reject("debug", fmt.Errorf("%s: want host:port", naming.Quote(at)))
		}
	}
	if files != nil {
		o.Credentials.TLS = &ads.TLS{CAFile: files.CA, ServerName: files.ServerName, CertFile: files.Cert, KeyFile: files.Key}
	}
	if at := u.one("host"); at != "" {
		var err error
		o.Host, err = naming.ParseHostAddress(at)
		u.reject("host", err)
	}
	for _, text := range u.many("allow") {
		p, err := netip.ParsePrefix(text)
		u.reject("allow", err)
		o.Allow = append(o.Allow, p)
	}
	if err := u.done(); err != nil {
		return Backend{}, err
	}
	return Mesh(o)
}

// identity returns that of this process.
func (u *registryURL) identity() string {
	host, _ := os.Hostname()
	return cmp.Or(u.one("identity"), os.Getenv("POD_NAME"), fmt.Sprintf("%s-%d", host, os.Getpid()))
}
