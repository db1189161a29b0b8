package debug

import (
	"cmp"
	"io"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// DecodeOptions say what Decode accepts.
type DecodeOptions struct {
	MaxBytes int64    // 0: DefaultMaxBytes
	OwnNodes []string // as in Options
	Legacy   bool     // as in Options
	Bridged  bool     // as in Options
}

// Decode reads one response to adsz: what each client publishes and what of that
// could not be read, both in order of connection.
func Decode(body io.Reader, o DecodeOptions) ([]metadata.Publication, []metadata.PublicationError, error) {
	d := clientListDecoder{&Options{MaxBytes: cmp.Or(o.MaxBytes, DefaultMaxBytes), OwnNodes: o.OwnNodes, Legacy: o.Legacy, Bridged: o.Bridged}}
	r, err := d.decode(body)
	if err != nil {
		return nil, nil, err
	}
	skipped := r.skipped
	var publications []metadata.Publication
	for _, id := range slices.Sorted(maps.Keys(r.clients)) {
		c := r.clients[id]
		skipped = append(skipped, c.skipped...)
		if c.publication != nil {
			publications = append(publications, *c.publication)
		}
	}
	slices.SortStableFunc(skipped, CompareSkipped)
	return publications, skipped, nil
}
