package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// checkOwner refuses what neither names an owner nor is a mark of one.
func checkOwner(owner string) error {
	if strings.Contains(owner, ":") && !metadata.IsUnnamed(owner) {
		return cause.Usagef("%q is no owner; write its name, or its mark as in mark:r4kok4", owner)
	}
	return nil
}

// ownerGone returns the name of an owner that is gone, or is known by its mark
// alone. It is an error if a bridge of it runs.
func (t *Target) ownerGone(ctx context.Context, owner string) (string, error) {
	if t.Owners == nil || owner == "" {
		return owner, nil
	}
	if metadata.IsUnnamed(owner) {
		names, err := t.Owners.Owners(ctx)
		if err != nil {
			return "", cause.Unreachablef("target %s: %w", t.Name, err)
		}
		if i := slices.IndexFunc(names, func(name string) bool { return metadata.OwnerMark(name) == metadata.OwnerMark(owner) }); i >= 0 {
			owner = names[i]
		}
	}
	who, err := t.Owners.Alive(ctx, owner)
	if err != nil {
		return "", cause.Unreachablef("target %s: %w", t.Name, err)
	}
	if who != "" {
		return "", cause.Usagef("target %s: a bridge of owner %s still runs: %s; stop it first", t.Name, owner, who)
	}
	return owner, nil
}

// remembered returns the owners that targets remember, false if that is not
// known: none of them remembers any, or one may not be asked.
func remembered(ctx context.Context, targets []Target) (names []string, ok bool, err error) {
	for _, t := range targets {
		if t.Owners == nil {
			continue
		}
		owners, err := t.Owners.Owners(ctx)
		if errors.Is(err, registry.ErrRefused) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, cause.Unreachablef("target %s: %w", t.Name, err)
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

// OwnerSet says whose entries a person adopts.
type OwnerSet struct {
	owners []string // as registry.Stored.Owner has them; "" is nobody
}

// Has reports whether entries of an owner are adopted. A nil set has none.
func (t *OwnerSet) Has(owner string) bool { return t != nil && slices.Contains(t.owners, owner) }

// Reassign returns entries as if those that are adopted were ours already.
func (t *OwnerSet) Reassign(held []registry.Stored, owner string) []registry.Stored {
	if t == nil || len(t.owners) == 0 {
		return held
	}
	held = slices.Clone(held)
	for i := range held {
		if t.Has(held[i].Owner) {
			held[i].Owner = owner
		}
	}
	return held
}
