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

// buckets is the number of records of a set. A group is in one by the hash of its
// name. So a change rewrites little, and the records of a million endpoints fit
// into znodes.
const buckets = 32

const (
	recordVersion = 1
	maxRecord     = 900_000  // bytes of text; a znode has 1 MiB with its path
	maxUnpacked   = 64 << 20 // bytes of JSON
)

// A record is what is kept of one bucket. Its text is JSON, compressed, in base64.
type record struct {
	Version int         `json:"version"`
	Groups  []keptGroup `json:"groups"`
}

// A keptGroup is a group as it was served.
type keptGroup struct {
	Group   registry.Group `json:"group"`
	Entries []entry        `json:"entries,omitempty"`
	Gone    int64          `json:"gone,omitempty"` // since when, in Unix seconds, while its address is reserved
}

func bucketOf(g registry.Group) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(g.Namespace + "/" + g.Name))
	return int(h.Sum32() % buckets)
}

// encodeRecord returns the text of a record, empty for no groups. It is the same
// on every replica.
func encodeRecord(groups []keptGroup) (string, error) {
	if len(groups) == 0 {
		return "", nil
	}
	slices.SortFunc(groups, func(a, b keptGroup) int { return a.Group.Compare(b.Group) })
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
		return "", fmt.Errorf("record: %w: %d bytes for %d groups, at most %d", registry.ErrRefused, out.Len(), len(groups), maxRecord)
	}
	return out.String(), nil
}

// groupsIn returns the groups of a text, none of an empty one.
func groupsIn(text string) ([]keptGroup, error) {
	if text == "" {
		return nil, nil
	}
	return decodeRecord(text)
}

// decodeRecord returns the groups of a record. A truncated or altered one is an
// error: gzip has a checksum.
func decodeRecord(text string) ([]keptGroup, error) {
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
		err = fmt.Errorf("it has version %d, expected %d", r.Version, recordVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return r.Groups, nil
}

// A Store keeps what is served for the next process: in the registry that it
// comes from, or in a directory.
type Store struct {
	Recorder registry.Recorder
	Name     string                    // prefix of the kinds of its records, of letters, digits and hyphens
	Has      func(registry.Group) bool // which groups are kept there; nil: those that no store before it has

	// Index is the kind of the records that list the names of a mesh, and Names are
	// all names now. A name that replaces another finds what that one kept. Empty:
	// there is no list.
	Index string
	Names []string
}

func (s Store) keeps(g registry.Group) bool { return s.Has == nil || s.Has(g) }

func kindOf(name string, bucket int) string { return fmt.Sprintf("%s-%02d", name, bucket) }

// recordName is the name of the one record of a kind: a registry may keep all
// records of a kind as one text.
const recordName = "set"

func (s Store) read(ctx context.Context, name string, bucket int) (string, error) {
	all, err := s.Recorder.Records(ctx, kindOf(name, bucket))
	return all[recordName], err
}

// formerName returns the name that a store had before: the only one that is listed
// and not in use, if the store's name is the only one in use and not listed.
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

// relist lists the name of a store, and removes the one that it had before. Once
// all names are listed it removes those that are not in use.
func (s Store) relist(ctx context.Context, old string) error {
	if err := s.Recorder.Record(ctx, s.Index, map[string]string{s.Name: "listed"}); err != nil {
		return fmt.Errorf("record %s: %w", s.Index, err)
	}
	for b := range buckets {
		if old == "" {
			break
		}
		if err := s.Recorder.Record(ctx, kindOf(old, b), map[string]string{recordName: ""}); err != nil {
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

// A Dir is a registry.Recorder in a directory, which has to exist. A text is the
// file <path>/<kind>/<name>. Every error wraps registry.ErrRefused: with a disk a
// repetition does not help.
type Dir struct{ Path string }

var _ registry.Recorder = Dir{}

// maxText is more than the bytes of any text.
const maxText = 16 << 20

// Records implements registry.Recorder.
func (d Dir) Records(_ context.Context, kind string) (map[string]string, error) {
	dir := filepath.Join(d.Path, kind)
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
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(f.Name()) != "" { // such as a file that statefile.Replace left after a crash
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
func (d Dir) Record(_ context.Context, kind string, texts map[string]string) error {
	refused := make(registry.Refused)
	for name, text := range texts {
		if err := d.store(kind, name, text); err != nil {
			refused[name] = fmt.Errorf("%w: %w", registry.ErrRefused, err)
		}
	}
	return refused.Err()
}

func (d Dir) store(kind, name, text string) error {
	const private = 0o700
	path := filepath.Join(d.Path, kind, name)
	if text == "" {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.Mkdir(filepath.Dir(path), private); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return statefile.Replace(path, []byte(text))
}
