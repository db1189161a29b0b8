package naming_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/naming"
)

func TestReach(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reach naming.Reach
		host  string
		want  string // in the reason; empty: offered
	}{
		"an ordinary address":            {host: "10.0.0.1"},
		"an ordinary name":               {host: "a.example.com"},
		"loopback":                       {host: "127.0.0.1", want: "loopback"},
		"loopback of IPv6":               {host: "::1", want: "loopback"},
		"unspecified":                    {host: "0.0.0.0", want: "unspecified"},
		"link-local":                     {host: "169.254.1.1", want: "link-local"},
		"a metadata service":             {host: "169.254.169.254", want: "metadata"},
		"a metadata service by its name": {host: "metadata.google.internal", want: "metadata"},
		"loopback in IPv6":               {host: "::ffff:127.0.0.1", want: "loopback"},
		"metadata in IPv6":               {host: "::ffff:100.100.100.200", want: "metadata"},
		"metadata with a zone":           {host: "fd00:ec2::254%eth0", want: "metadata"},
		"loopback in IPv6, allowed":      {reach: naming.Reach{Allow: prefixes("127.0.0.0/8")}, host: "::ffff:127.0.0.1"},
		"a short form":                   {host: "127.1", want: "number"},
		"a number":                       {host: "2130706433", want: "number"},
		"a number in base 16":            {host: "0x7f000001", want: "number"},
		"own machine in DNS's form":      {host: "LOCALHOST.", want: "own machine"},
		"a name with numbers":            {host: "node-7.rack.12a"},
		"multicast":                      {host: "224.0.0.1", want: "multicast"},
		"broadcast":                      {host: "255.255.255.255", want: "broadcast"},
		"the caller's own machine":       {host: "localhost", want: "own machine"},
		"loopback that is allowed":       {reach: naming.Reach{Allow: prefixes("127.0.0.0/8")}, host: "127.0.0.1"},
		"unspecified is never allowed":   {reach: naming.Reach{Allow: prefixes("0.0.0.0/0")}, host: "0.0.0.0", want: "unspecified"},
		"within the networks":            {reach: naming.Reach{Only: prefixes("10.0.0.0/8")}, host: "10.1.2.3"},
		"outside the networks":           {reach: naming.Reach{Only: prefixes("10.0.0.0/8")}, host: "192.0.2.1", want: "outside"},
		"a network is no exception":      {reach: naming.Reach{Only: prefixes("127.0.0.0/8")}, host: "127.0.0.1", want: "loopback"},
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
