// Package adapter has what the adapters of frameworks share.
package adapter

import (
	"math/rand/v2"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// Open is client.Open with default formats. They apply if neither the URL nor the options name
// a format.
func Open(url string, o client.Options, formats map[string]string, kinds ...client.Kind) (*client.Client, error) {
	if o.Formats == nil {
		o.Formats = formats
	}
	return client.Open(url, o, kinds...)
}

// Share returns a weight in hundredths of a normal one, the unit of the formats.
func Share(w client.Weight) uint32 { return uint32(w.Part()*convert.Normal + 0.5) }

// Weight returns the weight of a reported share; 0: not reported.
func Weight(share uint32) client.Weight {
	if share == 0 {
		return client.Weight{}
	}
	return client.WeightOf(float64(share) / convert.Normal)
}

// Choose returns one of several at random, in proportion to the weights. It returns false if no
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
		one, ok = x, true // remains the choice if a weight changed after the sum
		if at < w {
			break
		}
		at -= w
	}
	return one, ok
}

// Header returns a lookup of headers for Router.Subset. Values in the maps are a string or a
// []string, and names may have any case. The first map has precedence.
func Header(headers ...map[string]any) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for _, header := range headers {
			for key, value := range header {
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
