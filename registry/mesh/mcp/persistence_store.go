package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A PersistentStore keeps what is served for the next process: in the registry that it
// comes from, or in a directory.
type PersistentStore struct {
	Recorder registry.Recorder
	Name     string                    // prefix of the kinds of its records, of letters, digits and hyphens
	Has      func(registry.Group) bool // which groups are kept there; nil: those that no store before it has

	// Index is the kind of the records that list the names of a mesh, and Names are
	// all names now. A name that replaces another finds what that one kept. Empty:
	// there is no list.
	Index string
	Names []string
}

func (s PersistentStore) accepts(g registry.Group) bool { return s.Has == nil || s.Has(g) }

func recordKind(name string, bucket int) string { return fmt.Sprintf("%s-%02d", name, bucket) }

// recordName is the name of the one record of a kind: a registry may keep all
// records of a kind as one text.
const recordName = "set"

func (s PersistentStore) readBucket(ctx context.Context, name string, bucket int) (string, error) {
	all, err := s.Recorder.Records(ctx, recordKind(name, bucket))
	return all[recordName], err
}

// findPreviousName returns the name that a store had before: the only one that is listed
// and not in use, if the store's name is the only one in use and not listed.
func (s PersistentStore) findPreviousName(ctx context.Context) (string, error) {
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

// listName lists the name of a store, and removes the one that it had before. Once
// all names are listed it removes those that are not in use.
func (s PersistentStore) listName(ctx context.Context, old string) error {
	if err := s.Recorder.Record(ctx, s.Index, map[string]string{s.Name: "listed"}); err != nil {
		return fmt.Errorf("record %s: %w", s.Index, err)
	}
	for b := range buckets {
		if old == "" {
			break
		}
		if err := s.Recorder.Record(ctx, recordKind(old, b), map[string]string{recordName: ""}); err != nil {
			return fmt.Errorf("forget %s: %w", old, err)
		}
	}
	listed, err := s.Recorder.Records(ctx, s.Index)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Index, err)
	}
	whole := !slices.ContainsFunc(s.Names, func(name string) bool { return listed[name] == "" })
	unused := make(map[string]string)
	for name := range listed {
		if !slices.Contains(s.Names, name) && (whole || name == old) {
			unused[name] = ""
		}
	}
	if len(unused) == 0 {
		return nil
	}
	if err := s.Recorder.Record(ctx, s.Index, unused); err != nil {
		return fmt.Errorf("forget names of %s: %w", s.Index, err)
	}
	return nil
}
