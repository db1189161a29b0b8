package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A PersistentStore is a place that persists groups for the next process: the registry
// that the groups come from, or a directory.
type PersistentStore struct {
	Recorder registry.Recorder
	// Name is the prefix of the kinds of its records. It has letters, digits and hyphens.
	Name string

	// Has reports whether the store has to persist a group. If nil, the store persists all
	// groups, and is loaded for those that no store before it has.
	Has func(registry.Group) bool

	// Index is the kind of the records that list the names of a mesh, and Names has all of
	// its names now. By the list, a name that replaces another finds the groups under the
	// previous one. If Index is empty, there is no list.
	Index string
	Names []string
}

func (s PersistentStore) accepts(g registry.Group) bool { return s.Has == nil || s.Has(g) }

func recordKind(name string, bucket int) string { return fmt.Sprintf("%s-%02d", name, bucket) }

// recordName is the name of the only record of a bucket. Each bucket has a kind of its
// own, because a registry may store all records of a kind as one text.
const recordName = "set"

func (s PersistentStore) readBucket(ctx context.Context, name string, bucket int) (string, error) {
	all, err := s.Recorder.Records(ctx, recordKind(name, bucket))
	return all[recordName], err
}

// findPreviousName returns the name that this store had before, or "" if it is unknown. It
// is known if exactly one listed name is not in use, and the store's name is the only name
// in use that is not listed.
func (s PersistentStore) findPreviousName(ctx context.Context) (string, error) {
	listed, err := s.Recorder.Records(ctx, s.Index)
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return "", fmt.Errorf("read the list of persisted names: %w", err)
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

// listName adds the store's name to the list, and removes its previous name and the
// buckets under it. Once all names in use are listed, it removes all others.
func (s PersistentStore) listName(ctx context.Context, old string) error {
	if err := s.Recorder.Record(ctx, s.Index, map[string]string{s.Name: "listed"}); err != nil {
		return fmt.Errorf("record %s: %w", s.Index, err)
	}
	for b := range buckets {
		if old == "" {
			break
		}
		if err := s.Recorder.Record(ctx, recordKind(old, b), map[string]string{recordName: ""}); err != nil {
			return fmt.Errorf("remove %s: %w", old, err)
		}
	}
	listed, err := s.Recorder.Records(ctx, s.Index)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Index, err)
	}
	allListed := !slices.ContainsFunc(s.Names, func(name string) bool { return listed[name] == "" })
	unused := make(map[string]string)
	for name := range listed {
		if !slices.Contains(s.Names, name) && (allListed || name == old) {
			unused[name] = ""
		}
	}
	if len(unused) == 0 {
		return nil
	}
	if err := s.Recorder.Record(ctx, s.Index, unused); err != nil {
		return fmt.Errorf("remove names from %s: %w", s.Index, err)
	}
	return nil
}
