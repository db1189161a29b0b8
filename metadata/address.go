package metadata

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// maxHost is the length of the longest host name.
const maxHost = 253

// The reasons why an address or a protocol cannot be written.
var (
	errEmpty = errors.New("is empty")
	errPort  = errors.New("port 0 cannot be called")
	errHost  = errors.New("is neither an IP address nor a host name")
)

// CheckProtocol takes what can be the scheme of a URL.
func CheckProtocol(s string) error {
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

// CheckAddress refuses addresses that cannot be called. Which of the others
// may be offered is decided where they come from.
func CheckAddress(host string, port uint16) error {
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
