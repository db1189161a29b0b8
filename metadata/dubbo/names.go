package dubbo

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// maxHost is the length of the longest host name.
const maxHost = 253

// The reasons why something cannot be written.
var (
	errEmpty    = errors.New("is empty")
	errReserved = errors.New("is a folder of Dubbo's own")
	errPort     = errors.New("port 0 cannot be called")
	errHost     = errors.New("is neither an IP address nor a host name")
)

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

// checkRoot takes a path of which each part can be a folder.
func checkRoot(root string) error {
	for part := range strings.SplitSeq(root[1:], "/") {
		if part == "" || part == "." || part == ".." || escapeNode(part) != part {
			return fmt.Errorf("root: %s cannot be a folder", naming.Quote(part))
		}
	}
	return nil
}

func checkProtocol(s string) error {
	if s == "" {
		return fmt.Errorf("protocol %w", errEmpty)
	}
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || (r < '0' || r > '9') && !strings.ContainsRune("+-._", r)) {
			return fmt.Errorf("protocol %.40q: %q is not allowed", s, r)
		}
	}
	return nil
}

// checkAddress refuses addresses that cannot be called. Which of the others
// may be offered is decided where they come from.
func checkAddress(host string, port uint16) error {
	if port == 0 {
		return fmt.Errorf("%.80q: %w", host, errPort)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.IsUnspecified() || addr.Zone() != "" {
			return fmt.Errorf("%q cannot be called from elsewhere", host)
		}
		return nil
	}
	if host == "" || len(host) > maxHost {
		return fmt.Errorf("%.80q %w", host, errHost)
	}
	last := ""
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if !validLabel(label) {
			return fmt.Errorf("%.80q %w", host, errHost)
		}
		last = label
	}
	if strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%.80q %w", host, errHost) // a broken IP address
	}
	return nil
}

func validLabel(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' && strings.Trim(s, allowed) == ""
}

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
