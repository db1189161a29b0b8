package app

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// signer returns what signs marks with the keys of a file; nil without one.
func signer(file string) (s *metadata.Signer, which string, err error) {
	if file == "" {
		return nil, "", nil
	}
	keys, err := config.ReadKeys(file)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // it names the file
	}
	raw := make([][]byte, 0, len(keys))
	for _, k := range keys {
		raw = append(raw, []byte(k.Reveal()))
	}
	return metadata.NewSigner(raw...), fmt.Sprintf("%x", sha256.Sum256(bytes.Join(raw, []byte("\n")))), nil
}

// signerFor returns what signs the entries of a bridge: in a mesh they are
// served by ourselves alone, and nobody has to vouch for them.
func (b *builder) signerFor(x config.Bridge) *metadata.Signer {
	if b.kind(x.To).abilities().imports != nil {
		return nil
	}
	return b.signer
}

// reserve returns how much room a signature takes in an entry.
func (b *builder) reserve() int {
	if b.signer == nil {
		return 0
	}
	return metadata.SignedLen
}

// identities name bridges so that they are known again under another owner.
func identities(bridges []config.Bridge) []string {
	var all []string
	for _, x := range bridges {
		for _, f := range x.Formats {
			all = append(all, x.Name+" from "+x.From+" into "+f.Format+" "+f.Root)
		}
	}
	return all
}

// author returns what names the bridge that wrote an entry of ours at an end.
// Holds and their records bear that name, so that a restart must not change it:
// of a bridge that is not configured only the mark is known then.
func (b *builder) author(at sinkKey) func(registry.Entry) string {
	r, leading := b.cfg.Registries[at.registry], make(map[string]config.Bridge)
	for _, x := range leadingTo(b.cfg, at) {
		leading[bridgeMark(x.Name)] = x
	}
	return func(e registry.Entry) string {
		m, err := metadata.MarkOf(e)
		if err != nil {
			return ""
		}
		mark, p := markPrefix+m.Bridge, placeOf(e.Group)
		switch x, known := leading[mark]; {
		case !known:
			return mark
		case at.listen != "", writes(r, x, p):
			return x.Name
		default:
			return x.Name + atPlace + p.String()
		}
	}
}

// No name of a bridge holds a colon or a space.
const (
	markPrefix = "mark:" // before the mark of a bridge that is not configured
	atPlace    = " at "  // between a bridge and a place that it does not write
)

// bridgeMark names a bridge by its mark.
func bridgeMark(name string) string {
	if strings.HasPrefix(name, markPrefix) {
		return name
	}
	return markPrefix + metadata.Fingerprint(name, metadata.BridgeLen)
}

// wrote reports whether an entry bears the mark of a bridge.
func wrote(bridge string, e registry.Entry) bool {
	m, err := metadata.MarkOf(e)
	return err == nil && markPrefix+m.Bridge == bridgeMark(bridge)
}

// SameBridge reports whether entries of an author are those of a bridge.
func SameBridge(author, bridge string) bool {
	name, _, _ := strings.Cut(author, atPlace)
	return bridgeMark(name) == bridgeMark(bridge)
}
