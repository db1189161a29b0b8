package dubborpc

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestDialer_ResolvedAddresses checks addresses to which no name resolves on a test
// machine.
func TestDialer_ResolvedAddresses(t *testing.T) {
	t.Parallel()
	for address, refused := range map[string]bool{
		"10.0.0.1:1": false, "[2001:db8::1]:1": false, "127.0.0.1:1": true, "169.254.169.254:80": true,
		"[::ffff:100.100.100.200]:80": true, "[fe80::1%eth0]:1": true, "[fd00:ec2::254]:80": true,
	} {
		d := &dialer{reach: &naming.Reach{}}
		if err := d.control("tcp", address, nil); errors.Is(err, registry.ErrRefused) != refused || (d.refusal() != "") != refused {
			t.Errorf("%s: %v, %q", address, err, d.refusal())
		}
	}
}
