package admin

import (
	"maps"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// hidden stands for a value that nobody needs to see.
const hidden = "<redacted>"

// redacted returns attributes without the values of keys that look as if they
// held a secret: what providers register is theirs, and some register tokens.
func redacted(a registry.Attributes) registry.Attributes {
	var out registry.Attributes
	for k := range a {
		if !secretive(k) {
			continue
		}
		if out == nil {
			out = maps.Clone(a)
		}
		out[k] = hidden
	}
	if out == nil {
		return a
	}
	return out
}

// secretive reports whether the name of an attribute says that it is secret.
func secretive(key string) bool {
	k := strings.ToLower(key)
	for _, word := range []string{"password", "passwd", "token", "secret", "credential", "accesskey", "access-key", "access_key", "apikey", "api-key", "api_key", "private"} {
		if strings.Contains(k, word) {
			return true
		}
	}
	return k == "ak" || k == "sk"
}
