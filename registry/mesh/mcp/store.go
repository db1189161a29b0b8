package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Store keeps what is served where the next process finds it: in the
// registry that it comes from, or in a directory.
type Store struct {
	Recorder registry.Recorder
	Name     string                    // of the kinds of its records: a word of letters, digits and hyphens
	Has      func(registry.Group) bool // which groups are kept there; nil: all that no store before it gave back

	// Index is the kind of the list of those Names under which a mesh is kept,
	// and Names are all of them now. One that replaces another
	// finds what that one kept. Empty: there is no list.
	Index string
	Names []string
}

func (s Store) kind(bucket int) string { return fmt.Sprintf("%s-%02d", s.Name, bucket) }

// recordName is the name of the one record of a kind: a registry may keep all
// records of a kind as one text.
const recordName = "set"

func (s Store) read(ctx context.Context, bucket int) (string, error) {
	all, err := s.Recorder.Records(ctx, s.kind(bucket))
	return all[recordName], err //nolint:wrapcheck // load and check name it
}

// formerName returns the name that a store had: the one that is listed and not in
// use any more, if the only one that is in use and not listed is that of now.
func (s Store) formerName(ctx context.Context) (string, error) {
	listed, err := s.Recorder.Records(ctx, s.Index)
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return "", fmt.Errorf("read which addresses were served: %w", err)
	}
	fresh := slices.DeleteFunc(slices.Clone(s.Names), func(name string) bool { return listed[name] != "" })
	for _, name := range s.Names {
		delete(listed, name)
	}
	if len(listed) != 1 || len(fresh) != 1 || fresh[0] != s.Name {
		return "", nil
	}
	return slices.Collect(maps.Keys(listed))[0], nil
}

// relist lists the name of a store, and forgets the one that it had before. Once
// all names are listed it forgets those that are not in use any more.
func (s Store) relist(ctx context.Context, old string) error {
	if err := s.Recorder.Record(ctx, s.Index, s.Name, "listed"); err != nil {
		return fmt.Errorf("record %s: %w", s.Index, err)
	}
	for b := range buckets {
		if old == "" {
			break
		}
		if err := s.Recorder.Record(ctx, Store{Name: old}.kind(b), recordName, ""); err != nil {
			return fmt.Errorf("forget %s: %w", old, err)
		}
	}
	listed, err := s.Recorder.Records(ctx, s.Index)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Index, err)
	}
	whole := !slices.ContainsFunc(s.Names, func(name string) bool { return listed[name] == "" })
	for name := range listed {
		if slices.Contains(s.Names, name) || !whole && name != old {
			continue
		}
		if err := s.Recorder.Record(ctx, s.Index, name, ""); err != nil {
			return fmt.Errorf("forget %s: %w", name, err)
		}
	}
	return nil
}
