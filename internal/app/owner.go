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
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// signer returns what signs marks with the keys of a file, and a hash of them; nil
// without one.
func signer(file string) (s *metadata.Signer, keysHash string, err error) {
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

// author returns what names the bridge that wrote an entry of ours in a target.
// Holds and their records bear that name, so that a restart must not change it:
// of a bridge that is not configured only the mark is known then.
func author(cfg *config.Config, at targetKey) func(registry.Entry) string {
	r, leading := cfg.Registries[at.registry], make(map[string]config.Bridge)
	isMesh := meshIn(cfg, at.registry) != nil // which has one place for all
	for _, x := range leadingTo(cfg, at) {
		leading[bridgeMark(x.Name)] = x
	}
	return func(e registry.Entry) string {
		m, err := metadata.MarkOf(e)
		if err != nil {
			return ""
		}
		mark, p := markPrefix+m.Bridge, groupLocation(e.Group)
		switch x, known := leading[mark]; {
		case !known:
			return mark
		case isMesh, writes(r, x, p):
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

// bridgeMark names a bridge by its mark.
func bridgeMark(name string) string {
	if strings.HasPrefix(name, markPrefix) {
		return name
	}
	return markPrefix + metadata.Fingerprint(name, metadata.BridgeLen)
}

// wrote reports whether an entry bears the mark of a bridge or, without one, its head
// does: what the group holds under registry.HeadKey.
func wrote(bridge string, e registry.Entry, held []registry.Held) bool {
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

// operateForKnownOwner carries it out, and fails if nothing was found of an owner whom
// nobody knows: neither the configuration, nor a target, nor the mark of an entry.
func (r *runtime) operateForKnownOwner(ctx context.Context, request operationRequest, sinks []*sink, configured string) (done, left []Step, err error) {
	names, ok, err := remembered(ctx, sinks) // before the work, which ends in that the owner is forgotten
	if err != nil {
		return nil, nil, err
	}
	names = slices.Compact(slices.Sorted(slices.Values(append(names, configured))))
	mark, change := metadata.OwnerMark(request.absent), request.change
	marks := append(metadata.Disowned(mark), mark)
	known := request.absent == "" || !ok || slices.ContainsFunc(names, func(name string) bool { return metadata.OwnerMark(name) == mark })
	request.change = func(g registry.Group, held []registry.Held) registry.Change {
		known = known || slices.ContainsFunc(held, func(r registry.Held) bool { return slices.Contains(marks, r.Owner) })
		return change(g, held)
	}
	done, left, err = r.operateOnEach(ctx, request, sinks)
	if err == nil && !known && len(done)+len(left) == 0 {
		err = unknownOwner(request.absent, names)
	}
	return done, left, err
}

// remembered returns the owners that targets remember, false if that is not
// known: none of them remembers any, or one may not be asked.
func remembered(ctx context.Context, sinks []*sink) (names []string, ok bool, err error) {
	for _, t := range sinks {
		k, remembers := t.target.(rememberer)
		if !remembers {
			continue
		}
		owners, err := k.Owners(ctx)
		if errors.Is(err, registry.ErrRefused) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, unreachable("target %s: %w", t.name, err)
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
	return &Error{CauseFindings, fmt.Errorf("no owner %q is known, and no entry bears its mark%s", owner, hint)}
}
