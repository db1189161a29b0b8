package instance

import (
	"fmt"
	"net"
	"strconv"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// ParseAddress reads host:port, an IPv6 host in brackets.
func ParseAddress(s string) (Port, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Port{}, fmt.Errorf("%.80q is no host:port", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Port{}, fmt.Errorf("%.80q: port %.20q is not within 1 to 65535", s, port)
	}
	if err := metadata.CheckAddress(host, uint16(n)); err != nil {
		return Port{}, err //nolint:wrapcheck // says what is wrong with which
	}
	return Port{Host: host, Port: uint16(n)}, nil
}
