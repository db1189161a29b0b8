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
