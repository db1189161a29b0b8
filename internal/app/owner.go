package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// newSigner returns a signer of marks with the keys of a file, and a hash of the keys;
// nil without a file.
func newSigner(file string) (s *metadata.Signer, keysHash string, err error) {
	if file == "" {
		return nil, "", nil
	}
	keys, err := config.ReadKeys(file)
	if err != nil {
		return nil, "", err
	}
	raw := make([][]byte, 0, len(keys))
	for _, k := range keys {
		raw = append(raw, []byte(k.Reveal()))
	}
	return metadata.NewSigner(raw...), fmt.Sprintf("%x", sha256.Sum256(bytes.Join(raw, []byte("\n")))), nil
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

// author returns a function that names the bridge of an entry of ours in a target.
// Holds and their records bear that name, so that a restart must not change it:
// of a bridge that is not configured only the mark is known then.
func author(cfg *config.Config, at config.TargetKey) func(registry.Entry) string {
	r, leading := cfg.Registries[at.Registry], make(map[string]config.Bridge)
	isMesh := cfg.Mesh(at.Registry) != nil // which has one place for all
	for _, x := range cfg.BridgesTo(at) {
		leading[bridgeMark(x.Name)] = x
	}
	return func(e registry.Entry) string {
		m, err := metadata.MarkOf(e)
		if err != nil {
			return ""
		}
		mark, p := markPrefix+m.Bridge, registry.Group{Kind: e.Group.Kind, Namespace: e.Group.Namespace, Group: e.Group.Group}
		switch x, known := leading[mark]; {
		case !known:
			return mark
		case isMesh, bridgeWrites(r, x, p):
			return x.Name
		default:
			return x.Name + atPlace + p.String()
		}
	}
}

// No name of a bridge holds a colon or a space.
const (
	markPrefix = "mark:" // before the mark of a bridge that is not configured
	atPlace    = " at "  // between a bridge and a location that it does not write
)

func bridgeMark(name string) string {
	if strings.HasPrefix(name, markPrefix) {
		return name
	}
	return markPrefix + metadata.Fingerprint(name, metadata.BridgeLen)
}

// isOfBridge reports whether an entry bears the mark of a bridge or, without one, its head
// does: what the group holds under registry.HeadKey.
func isOfBridge(bridge string, e registry.Entry, held []registry.Stored) bool {
	m, err := metadata.MarkOf(e)
	for _, h := range held {
		if err != nil && h.Key == registry.HeadKey {
			m, err = metadata.MarkOf(h.Entry)
		}
	}
	return err == nil && markPrefix+m.Bridge == bridgeMark(bridge)
}

// SameBridge reports whether entries of an author are those of a bridge.
func SameBridge(author, bridge string) bool {
	name, _, _ := strings.Cut(author, atPlace)
	return bridgeMark(name) == bridgeMark(bridge)
}

// checkOwner refuses what neither names an owner nor is a mark of one.
func checkOwner(owner string) error {
	if strings.Contains(owner, ":") && !metadata.IsUnnamed(owner) {
		return cause.Usagef("%q is no owner; write its name, or its mark as in mark:r4kok4", owner)
	}
	return nil
}

// ownerGone returns the name of an owner that is gone, or is known by its mark
// alone. It is an error if a bridge of it runs.
func (t *target) ownerGone(ctx context.Context, owner string) (string, error) {
	if t.owners == nil || owner == "" {
		return owner, nil
	}
	if metadata.IsUnnamed(owner) {
		names, err := t.owners.Owners(ctx)
		if err != nil {
			return "", cause.Unreachablef("target %s: %w", t.name, err)
		}
		if i := slices.IndexFunc(names, func(name string) bool { return metadata.OwnerMark(name) == metadata.OwnerMark(owner) }); i >= 0 {
			owner = names[i]
		}
	}
	who, err := t.owners.Alive(ctx, owner)
	if err != nil {
		return "", cause.Unreachablef("target %s: %w", t.name, err)
	}
	if who != "" {
		return "", cause.Usagef("target %s: a bridge of owner %s still runs: %s; stop it first", t.name, owner, who)
	}
	return owner, nil
}

// remembered returns the owners that targets remember, false if that is not
// known: none of them remembers any, or one may not be asked.
func remembered(ctx context.Context, targets []*target) (names []string, ok bool, err error) {
	for _, t := range targets {
		if t.owners == nil {
			continue
		}
		owners, err := t.owners.Owners(ctx)
		if errors.Is(err, registry.ErrRefused) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, cause.Unreachablef("target %s: %w", t.name, err)
		}
		names, ok = append(names, owners...), true
	}
	return names, ok, nil
}

// unknownOwner names the known owner that is nearest, or all of them.
func unknownOwner(owner string, known []string) error {
	hint := "; known are " + strings.Join(known, ", ")
	if near := naming.Near(owner, known, 1); len(near) > 0 {
		hint = ", did you mean " + strconv.Quote(near[0]) + "?"
	}
	return cause.New(cause.Findings, fmt.Errorf("no owner %q is known, and no entry bears its mark%s", owner, hint))
}
