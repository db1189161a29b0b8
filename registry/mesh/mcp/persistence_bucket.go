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

// buckets is the number of buckets, each of which is one record. The hash of a group's name
// tells its bucket. A change rewrites only one bucket, and with a million endpoints a bucket
// still fits into a znode.
const buckets = 32

const (
	persistedVersion = 1
	maxPersistedText = 900_000  // bytes; a znode has 1 MiB with its path
	maxPersistedJSON = 64 << 20 // bytes before compression
)

// A persistedBucket is the content of one bucket. Its text is JSON, compressed, in base64.
type persistedBucket struct {
	Version int              `json:"version"`
	Groups  []persistedGroup `json:"groups"`
}

// A persistedGroup is a group as it was served, or a removed group whose address is still
// reserved.
type persistedGroup struct {
	Group     registry.Group `json:"group"`
	Entries   []entry        `json:"entries,omitempty"`
	RemovedAt int64          `json:"gone,omitempty"` // in Unix seconds; 0 if the group is served
}

func bucketOf(g registry.Group) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(g.Namespace + "/" + g.Name))
	return int(h.Sum32() % buckets)
}

// encodeBucket returns the text of a bucket, which is empty without groups. The same groups
// have the same text on every replica. A text that is too large is a registry.ErrRefused.
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
		return "", fmt.Errorf("record: %w: %d bytes for %d groups, at most %d",
			registry.ErrRefused, out.Len(), len(groups), maxPersistedText)
	}
	return out.String(), nil
}

// decodeOptionalBucket returns the groups in a text. An empty text has none.
func decodeOptionalBucket(text string) ([]persistedGroup, error) {
	if text == "" {
		return nil, nil
	}
	return decodeBucket(text)
}

// decodeBucket returns the groups in the text of a bucket. A truncated or altered text is
// an error, because gzip has a checksum.
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
		err = fmt.Errorf("version %d, expected %d", r.Version, persistedVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return r.Groups, nil
}
