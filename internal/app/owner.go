package app

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
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
	if b.cfg.Registries[x.To].Istiod != nil {
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
