package program

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
)

// Session is what a ZooKeeper waits for a client that it does not hear.
const Session = 30 * time.Second

// Registry is where a ZooKeeper or Nacos is.
type Registry struct {
	Kind      string // zookeeper, nacos
	Host      string
	Port      uint64
	Namespace string // of Nacos; empty: public
}

func open(text string) (*Registry, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	r := &Registry{Kind: u.Scheme, Host: u.Hostname(), Namespace: strings.Trim(u.Path, "/")}
	if r.Port, err = strconv.ParseUint(u.Port(), 10, 16); err != nil {
		return nil, fmt.Errorf("port of %s: %w", text, err)
	}
	return r, nil
}

// InNacos reports whether it is a Nacos.
func (r *Registry) InNacos() bool { return r.Kind == "nacos" }

// Servers are those of a ZooKeeper.
func (r *Registry) Servers() []string {
	return []string{net.JoinHostPort(r.Host, strconv.FormatUint(r.Port, 10))}
}

// ZooKeeper connects to it.
func (r *Registry) ZooKeeper() (*zk.Conn, error) {
	conn, _, err := zk.Connect(r.Servers(), Session)
	return conn, err
}

// Nacos connects to it. Its caches and logs go into the working directory.
func (r *Registry) Nacos() (naming_client.INamingClient, error) {
	return clients.NewNamingClient(vo.NacosClientParam{
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig(r.Host, r.Port)},
		ClientConfig: &constant.ClientConfig{
			NamespaceId: r.Namespace, NotLoadCacheAtStart: true, CacheDir: "cache", LogDir: "log", LogLevel: "warn",
		},
	})
}
