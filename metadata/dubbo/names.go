package dubbo

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errReserved = errors.New("is a path of Dubbo's own")

// checkInterface refuses service keys that no consumer could ask for or that
// would reach into the path of another one.
func checkInterface(i registry.Interface) error {
	if _, err := naming.ParseServiceKey(serviceKey(i)); err != nil {
		return err //nolint:wrapcheck // says what is wrong with which key
	}
	switch i.Name {
	case "config", "mapping", "metadata":
		return fmt.Errorf("interface %q %w", i.Name, errReserved)
	}
	return nil
}

// serviceKey writes the key `providers:<interface>:<version>:<group>`.
func serviceKey(i registry.Interface) string {
	return naming.ServiceKey{
		Category: naming.Providers, Interface: i.Name, Version: i.Version, Group: i.Group,
	}.String()
}

// checkRoot takes a path of which each part can be a parent.
func checkRoot(root string) error {
	for part := range strings.SplitSeq(root[1:], "/") {
		if part == "" || part == "." || part == ".." || escapeNode(part) != part {
			return fmt.Errorf("%s cannot be a znode", naming.Quote(part))
		}
	}
	return nil
}

func checkProtocol(s string) error { return metadata.CheckProtocol(s) } //nolint:wrapcheck // says what is wrong with which

func checkAddress(host string, port uint16) error { return metadata.CheckAddress(host, port) } //nolint:wrapcheck // as above

// splitName takes a mesh row's name `fqdn:port` apart; for any other name the
// port is 0.
func splitName(name registry.Name) (host string, port uint16) {
	s := string(name)
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if n, err := strconv.ParseUint(s[i+1:], 10, 16); err == nil {
			return s[:i], uint16(n)
		}
	}
	return s, 0
}

// hostPort joins a host and a port, an IPv6 host in brackets.
func hostPort(host string, port uint16) string {
	if strings.IndexByte(host, ':') >= 0 {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}
