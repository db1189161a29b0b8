package kind

import (
	"encoding/base64"
	"testing"

	"github.com/xds-bridge/xds-bridge/config"
)

// FuzzClaims shows that no token is more than claims or an error that does not
// repeat it.
func FuzzClaims(f *testing.F) {
	f.Add("", `{"aud":["istio-ca"],"exp":1000,"kubernetes.io":{"namespace":"shop"}}`)
	f.Add("", `{"aud":"istio-ca","exp":-9223372036854775808}`)
	f.Add("", `{"aud":7}`)
	f.Add("a.b.c", ``)
	f.Add("a.====.c", ``)
	f.Fuzz(func(t *testing.T, token, payload string) {
		if token == "" {
			token = "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".sig"
		}
		_, err := readClaims(config.Secret(token))
		if err != nil && len(err.Error()) > 80 {
			t.Errorf("%d bytes are reported of %d", len(err.Error()), len(token))
		}
	})
}
