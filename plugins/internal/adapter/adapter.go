// Package adapter is what the adapters of frameworks have in common.
package adapter

import (
	"math/rand/v2"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// Open is client.Open with the formats of a framework where the URL names none, and the
// options none.
func Open(url string, o client.Options, formats map[string]string, kinds ...client.Kind) (*client.Client, error) {
	if o.Formats == nil {
		o.Formats = formats
	}
	return client.Open(url, o, kinds...)
}

// Share returns a weight as the formats count it: in hundredths of a normal one.
func Share(w client.Weight) uint32 { return uint32(w.Part()*convert.Normal + 0.5) }

// Weight returns the weight of a share that is reported; 0: it is not.
func Weight(share uint32) client.Weight {
	if share == 0 {
		return client.Weight{}
	}
	return client.WeightOf(float64(share) / convert.Normal)
}

// Choose returns one of several, each as often as its weight says; none where no
// weight is above 0.
func Choose[T any](several []T, weight func(T) uint64) (one T, ok bool) {
	var total uint64
	for _, x := range several {
		total += weight(x)
	}
	if total == 0 {
		return one, false
	}
	at := rand.Uint64N(total) //nolint:gosec // spreads load, keeps no secret
	for _, x := range several {
		w := weight(x)
		if w == 0 {
			continue
		}
		one, ok = x, true // the last where a weight changed since they were added up
		if at < w {
			break
		}
		at -= w
	}
	return one, ok
}

// Header returns what Subset asks for headers, of maps that hold a text or several for
// a name in any case. Those of the first map come first.
func Header(headers ...map[string]any) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for _, some := range headers {
			for key, value := range some {
				if !strings.EqualFold(key, name) {
					continue
				}
				if several, ok := value.([]string); ok {
					return strings.Join(several, ","), true
				}
				text, ok := value.(string)
				return text, ok
			}
		}
		return "", false
	}
}
