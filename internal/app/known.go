package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// workedOnOwner does the work, and fails if nothing was found of an owner whom
// nobody knows: neither the configuration, nor a target, nor the mark of an entry.
func (h *runtime) workedOnOwner(ctx context.Context, w operation, sinks []*sink, configured string) (done, left []Step, err error) {
	names, ok, err := remembered(ctx, sinks) // before the work, which ends in that the owner is forgotten
	if err != nil {
		return nil, nil, err
	}
	names = slices.Compact(slices.Sorted(slices.Values(append(names, configured))))
	mark, change := metadata.OwnerMark(w.gone), w.change
	marks := append(metadata.Disowned(mark), mark)
	known := w.gone == "" || !ok || slices.ContainsFunc(names, func(name string) bool { return metadata.OwnerMark(name) == mark })
	w.change = func(g registry.Group, held []registry.Held) registry.Change {
		known = known || slices.ContainsFunc(held, func(h registry.Held) bool { return slices.Contains(marks, h.Owner) })
		return change(g, held)
	}
	done, left, err = h.worked(ctx, w, sinks)
	if err == nil && !known && len(done)+len(left) == 0 {
		err = unknownOwner(w.gone, names)
	}
	return done, left, err
}

// remembered returns the owners that targets remember, false if that is not
// known: none of them remembers any, or one may not be asked.
func remembered(ctx context.Context, sinks []*sink) (names []string, ok bool, err error) {
	for _, t := range sinks {
		k, lasting := t.target.(rememberer)
		if !lasting {
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
