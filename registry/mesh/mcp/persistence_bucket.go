package mcp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// buckets is the number of records of a set. A group is in one by the hash of its
// name. So a change rewrites little, and the records of a million endpoints fit
// into znodes.
const buckets = 32

const (
	persistedVersion = 1
	maxPersistedText = 900_000  // bytes of text; a znode has 1 MiB with its path
	maxPersistedJSON = 64 << 20 // bytes of JSON
)

// A persistedBucket is what is kept of one bucket. Its text is JSON, compressed, in base64.
type persistedBucket struct {
	Version int              `json:"version"`
	Groups  []persistedGroup `json:"groups"`
}

// A persistedGroup is a group as it was served.
type persistedGroup struct {
	Group     registry.Group `json:"group"`
	Entries   []entry        `json:"entries,omitempty"`
	RemovedAt int64          `json:"gone,omitempty"` // since when, in Unix seconds, while its address is reserved
}

func bucketOf(g registry.Group) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(g.Namespace + "/" + g.Name))
	return int(h.Sum32() % buckets)
}

// encodeBucket returns the text of a record, empty for no groups. It is the same
// on every replica.
func encodeBucket(groups []persistedGroup) (string, error) {
	if len(groups) == 0 {
		return "", nil
	}
	slices.SortFunc(groups, func(a, b persistedGroup) int { return a.Group.Compare(b.Group) })
	raw, err := json.Marshal(persistedBucket{persistedVersion, groups})
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
	if out.Len() > maxPersistedText {
		return "", fmt.Errorf("record: %w: %d bytes for %d groups, at most %d", registry.ErrRefused, out.Len(), len(groups), maxPersistedText)
	}
	return out.String(), nil
}

// decodeOptionalBucket returns the groups of a text, none of an empty one.
func decodeOptionalBucket(text string) ([]persistedGroup, error) {
	if text == "" {
		return nil, nil
	}
	return decodeBucket(text)
}

// decodeBucket returns the groups of a record. A truncated or altered one is an
// error: gzip has a checksum.
func decodeBucket(text string) ([]persistedGroup, error) {
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader([]byte(text))))
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(packed, maxPersistedJSON+1))
	if err == nil && len(raw) > maxPersistedJSON {
		err = fmt.Errorf("more than %d bytes", maxPersistedJSON)
	}
	var r persistedBucket
	if err = cmp.Or(err, packed.Close()); err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err == nil && r.Version != persistedVersion {
		err = fmt.Errorf("it has version %d, expected %d", r.Version, persistedVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return r.Groups, nil
}
