package kind

import (
	"strings"
	"testing"
)

func TestPreflight_IstiodAddress(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":15031": "xds://HOST:15031, where HOST", "0.0.0.0:15031": "xds://HOST:15031, where HOST", "[::]:15031": "xds://HOST:15031, where HOST",
		"127.0.0.1:15031": "xds://127.0.0.1:15031", "bridge.shop:15031": "xds://bridge.shop:15031", "[::1]:15031": "xds://[::1]:15031",
	} {
		if got := sourceAddress(listen); !strings.Contains(got, want) || !strings.Contains(want, "HOST") && !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
