package client

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// FromURL returns the backend that a URL names, so that which registry an
// application uses is one line of its configuration:
//
//	mesh://istiod.istio-system.svc:15010?name=greeter-1&namespace=shop&ip=10.0.0.1
//	mesh+tls://istiod.istio-system.svc:15012?name=greeter-1&namespace=shop&ip=10.0.0.1&ca=/etc/istio/ca.pem&token=/var/run/secrets/tokens/istio-token
//	zookeeper://10.1.0.1:2181,10.1.0.2:2181/dubbo?identity=greeter-1
//	nacos://10.2.0.1:8848,10.2.0.2:8848/namespace?group=DEFAULT_GROUP&identity=greeter-1
//
// A consumer of ZooKeeper or Nacos needs no identity. docs/plugins.md lists the
// parameters; one that is not known is an error. Log may be nil.
func FromURL(text string, log *slog.Logger) (Backend, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return Backend{}, fmt.Errorf("registry %q: want mesh, mesh+tls, zookeeper or nacos, and :// behind it", text)
	}
	rest, query, _ := strings.Cut(rest, "?")
	servers, path, _ := strings.Cut(rest, "/")
	values, err := url.ParseQuery(query)
	if err != nil {
		return Backend{}, fmt.Errorf("registry %s: %w", scheme, err)
	}
	u := &registryURL{servers: servers, path: path, values: values, log: log}
	makers := map[string]func() (Backend, error){
		"mesh":      func() (Backend, error) { return u.mesh(nil) },
		"mesh+tls":  func() (Backend, error) { return u.mesh(&ads.TLS{}) },
		"zookeeper": u.zooKeeper,
		"nacos":     u.nacos,
	}
	maker := makers[scheme]
	if maker == nil {
		return Backend{}, fmt.Errorf("registry %s: not known; want one of %s", naming.Quote(scheme), strings.Join(slices.Sorted(maps.Keys(makers)), ", "))
	}
	b, err := maker()
	if err != nil {
		return Backend{}, fmt.Errorf("registry %s: %w", scheme, err)
	}
	return b, nil
}

// registryURL is a URL of which the parameters are taken one by one.
type registryURL struct {
	servers, path string
	values        url.Values
	log           *slog.Logger
	faults        []error
}

// one takes a parameter that may be given once.
func (u *registryURL) one(name string) string {
	all := u.many(name)
	if len(all) > 1 {
		u.fault(name, errors.New("given more than once"))
	}
	return strings.Join(all, "")
}

func (u *registryURL) many(name string) []string {
	all := u.values[name]
	delete(u.values, name)
	return all
}

func (u *registryURL) fault(name string, err error) {
	if err != nil {
		u.faults = append(u.faults, fmt.Errorf("%s: %w", name, err))
	}
}

func (u *registryURL) duration(name string) time.Duration {
	text := u.one(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	u.fault(name, err)
	return d
}

func (u *registryURL) flag(name string) bool {
	text := u.one(name)
	if text == "" {
		return false
	}
	on, err := strconv.ParseBool(text)
	u.fault(name, err)
	return on
}

// done returns what was wrong, parameters that nobody took included.
func (u *registryURL) done() error {
	for _, name := range slices.Sorted(maps.Keys(u.values)) {
		u.fault(naming.Quote(name), errors.New("no such parameter"))
	}
	return errors.Join(u.faults...)
}

func (u *registryURL) mesh(tls *ads.TLS) (Backend, error) {
	o := MeshOptions{
		Address:     u.servers,
		Credentials: ads.Credentials{TLS: tls, TokenFile: u.one("token"), Insecure: u.flag("insecure")},
		Identity: ads.Identity{
			Name: u.one("name"), Namespace: u.one("namespace"), IP: u.one("ip"), Domain: u.one("domain"), Cluster: u.one("cluster"),
		},
		DebugAddresses: u.many("debug"), Interval: u.duration("interval"), Log: u.log,
	}
	if tls != nil {
		*tls = ads.TLS{CAFile: u.one("ca"), ServerName: u.one("serverName"), CertFile: u.one("cert"), KeyFile: u.one("key")}
	}
	if host := u.one("host"); host != "" {
		var err error
		o.Host, err = naming.ParseHostAddress(host)
		u.fault("host", err)
	}
	for _, text := range u.many("allow") {
		p, err := netip.ParsePrefix(text)
		u.fault("allow", err)
		o.Allow = append(o.Allow, p)
	}
	if err := u.done(); err != nil {
		return Backend{}, err
	}
	return Mesh(o)
}

func (u *registryURL) zooKeeper() (Backend, error) {
	o := ZooKeeperOptions{Identity: u.one("identity"), Log: u.log}
	if u.path != "" {
		o.Root = "/" + u.path
	}
	o.Conn.Servers, o.Conn.Log = strings.Split(u.servers, ","), u.log
	o.Conn.User, o.Conn.PasswordFile = u.one("user"), u.one("passwordFile")
	o.Conn.SessionTimeout = u.duration("sessionTimeout")
	if err := u.done(); err != nil {
		return Backend{}, err
	}
	return ZooKeeper(o)
}

func (u *registryURL) nacos() (Backend, error) {
	o := NacosOptions{Group: u.one("group"), Identity: u.one("identity"), Log: u.log}
	for server := range strings.SplitSeq(u.servers, ",") {
		o.Conn.Servers = append(o.Conn.Servers, "http://"+server)
	}
	o.Conn.Namespace, o.Conn.Log = u.path, u.log
	o.Conn.Username = u.one("username")
	if file := u.one("passwordFile"); file != "" {
		o.Conn.Password = func() (string, error) {
			text, err := os.ReadFile(file)
			return strings.TrimSpace(string(text)), err
		}
	}
	if err := u.done(); err != nil {
		return Backend{}, err
	}
	return Nacos(o)
}
