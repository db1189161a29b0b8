package mcp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/statefile"
)

// What is served is kept in so many records, a group by the hash of its name:
// so that a change rewrites little, and a million endpoints fit what a node of
// ZooKeeper holds.
const buckets = 32

const (
	recordVersion = 1
	maxRecord     = 900_000  // bytes of text; a node of ZooKeeper holds 1 MiB with its path
	maxUnpacked   = 64 << 20 // bytes that are read of one
)

// A record is what is kept of one bucket, as JSON, compressed and in base64.
type record struct {
	Version int    `json:"version"`
	Groups  []kept `json:"groups"`
}

// kept is one group as it was served.
type kept struct {
	Group   registry.Group `json:"group"`
	Entries []entry        `json:"entries,omitempty"`
	Gone    int64          `json:"gone,omitempty"` // since when, in Unix seconds, while its address is reserved
}

func bucketOf(g registry.Group) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(g.Namespace + "/" + g.Name))
	return int(h.Sum32() % buckets)
}

// encodeRecord returns the text of a record: the same for the same groups on
// every replica, and empty for none.
func encodeRecord(groups []kept) (string, error) {
	if len(groups) == 0 {
		return "", nil
	}
	slices.SortFunc(groups, func(a, b kept) int { return a.Group.Compare(b.Group) })
	raw, err := json.Marshal(record{recordVersion, groups})
	if err != nil {
		return "", fmt.Errorf("record: %w", err)
	}
	var out bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &out)
	packed := gzip.NewWriter(text)
	_, err = packed.Write(raw)
	if err := errors.Join(err, packed.Close(), text.Close()); err != nil {
		return "", fmt.Errorf("record: %w", err)
	}
	if out.Len() > maxRecord {
		return "", fmt.Errorf("record: %w: %d bytes for %d groups, and %d are the most", registry.ErrRefused, out.Len(), len(groups), maxRecord)
	}
	return out.String(), nil
}

// groupsIn returns the groups of a text, none of an empty one.
func groupsIn(text string) ([]kept, error) {
	if text == "" {
		return nil, nil
	}
	return decodeRecord(text)
}

// decodeRecord returns the groups of a record. One that was cut short or
// altered is an error: gzip keeps a checksum.
func decodeRecord(text string) ([]kept, error) {
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader([]byte(text))))
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(packed, maxUnpacked+1))
	if err == nil && len(raw) > maxUnpacked {
		err = fmt.Errorf("more than %d bytes", maxUnpacked)
	}
	var r record
	if err = cmp.Or(err, packed.Close()); err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err == nil && r.Version != recordVersion {
		err = fmt.Errorf("of version %d, and this is version %d", r.Version, recordVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return r.Groups, nil
}

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

// keeps reports whether a group is kept in a store.
func (s Store) keeps(g registry.Group) bool { return s.Has == nil || s.Has(g) }

// kindOf returns the kind of the record of a bucket, under the name of a store.
func kindOf(name string, bucket int) string { return fmt.Sprintf("%s-%02d", name, bucket) }

// recordName is the name of the one record of a kind: a registry may keep all
// records of a kind as one text.
const recordName = "set"

func (s Store) read(ctx context.Context, name string, bucket int) (string, error) {
	all, err := s.Recorder.Records(ctx, kindOf(name, bucket))
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
		if err := s.Recorder.Record(ctx, kindOf(old, b), recordName, ""); err != nil {
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

// Dir keeps texts in a directory, as a registry does that can: a text is the
// file <path>/<kind>/<name>. The directory has to exist. Every error wraps
// registry.ErrRefused: what a disk does not give now it does not give later.
type Dir struct{ Path string }

var _ registry.Recorder = Dir{}

// maxText is more than any text that is kept.
const maxText = 16 << 20

// Records implements registry.Recorder.
func (r Dir) Records(_ context.Context, kind string) (map[string]string, error) {
	dir := filepath.Join(r.Path, kind)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	all := make(map[string]string, len(files))
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(f.Name()) != "" { // such as what statefile.Replace left in a crash
			continue
		}
		if info.Size() > maxText {
			return nil, fmt.Errorf("%w: %s holds %d bytes, at most %d", registry.ErrRefused, filepath.Join(dir, f.Name()), info.Size(), maxText)
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", registry.ErrRefused, err)
		}
		all[f.Name()] = string(text)
	}
	return all, nil
}

// Record implements registry.Recorder.
func (r Dir) Record(_ context.Context, kind, name, text string) error {
	const private = 0o700
	path := filepath.Join(r.Path, kind, name)
	var err error
	if text == "" {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else if err = os.Mkdir(filepath.Dir(path), private); err == nil || errors.Is(err, fs.ErrExist) {
		err = statefile.Replace(path, []byte(text))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	return nil
}
