package naming_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
)

func TestReach_F56(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reach naming.Reach
		host  string
		want  string // in the reason; empty: offered
	}{
		"F56 an ordinary address":            {host: "10.0.0.1"},
		"F56 an ordinary name":               {host: "a.example.com"},
		"F56 loopback":                       {host: "127.0.0.1", want: "loopback"},
		"F56 loopback of IPv6":               {host: "::1", want: "loopback"},
		"F56 unspecified":                    {host: "0.0.0.0", want: "unspecified"},
		"F56 link-local":                     {host: "169.254.1.1", want: "link-local"},
		"F56 a metadata service":             {host: "169.254.169.254", want: "metadata"},
		"F56 a metadata service by its name": {host: "metadata.google.internal", want: "metadata"},
		"F56 V41 loopback in IPv6":           {host: "::ffff:127.0.0.1", want: "loopback"},
		"F56 V41 metadata in IPv6":           {host: "::ffff:100.100.100.200", want: "metadata"},
		"F56 V41 metadata with a zone":       {host: "fd00:ec2::254%eth0", want: "metadata"},
		"F56 V41 loopback in IPv6, allowed":  {reach: naming.Reach{Allow: prefixes("127.0.0.0/8")}, host: "::ffff:127.0.0.1"},
		"F56 V41 a short form":               {host: "127.1", want: "number"},
		"F56 V41 a number":                   {host: "2130706433", want: "number"},
		"F56 V41 a number in base 16":        {host: "0x7f000001", want: "number"},
		"F56 V41 own machine in DNS's form":  {host: "LOCALHOST.", want: "own machine"},
		"F56 V41 a name with numbers":        {host: "node-7.rack.12a"},
		"F56 multicast":                      {host: "224.0.0.1", want: "multicast"},
		"F56 broadcast":                      {host: "255.255.255.255", want: "broadcast"},
		"F56 the caller's own machine":       {host: "localhost", want: "own machine"},
		"F56 loopback that is allowed":       {reach: naming.Reach{Allow: prefixes("127.0.0.0/8")}, host: "127.0.0.1"},
		"F56 unspecified is never allowed":   {reach: naming.Reach{Allow: prefixes("0.0.0.0/0")}, host: "0.0.0.0", want: "unspecified"},
		"F56 within the networks":            {reach: naming.Reach{Only: prefixes("10.0.0.0/8")}, host: "10.1.2.3"},
		"F56 outside the networks":           {reach: naming.Reach{Only: prefixes("10.0.0.0/8")}, host: "192.0.2.1", want: "outside"},
		"F56 a network is no exception":      {reach: naming.Reach{Only: prefixes("127.0.0.0/8")}, host: "127.0.0.1", want: "loopback"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.reach.Refuse(tt.host)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s: %q, want %q in it", tt.host, got, tt.want)
			}
		})
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
