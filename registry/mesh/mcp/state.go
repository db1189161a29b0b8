package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/statefile"
)

// A StateFile keeps the entries that were served last, so that a restarted
// bridge can answer a starting istiod before its registries told of
// everything. It is a cache: it is never a reason to delete anything.
type StateFile struct{ Path string }

// maxState bounds what is read back.
const maxState = 1 << 30

// stateVersion is the form of a state file.
const stateVersion = 1

type state struct {
	Version int              `json:"version"`
	Sum     string           `json:"sha256"` // of entries as they stand in the file
	Entries []registry.Entry `json:"-"`
	Raw     json.RawMessage  `json:"entries"`
}

// Load returns what was saved last, nothing where nothing was. A file that
// was cut short or altered is an error.
func (f *StateFile) Load() ([]registry.Entry, error) {
	info, err := os.Stat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > maxState {
		err = fmt.Errorf("%s: %d bytes, at most %d", f.Path, info.Size(), maxState)
	}
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("state file %s: %w", f.Path, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("state file %s: of version %d, and this is version %d", f.Path, s.Version, stateVersion)
	}
	if sum(s.Raw) != s.Sum {
		return nil, fmt.Errorf("state file %s: its checksum does not match", f.Path)
	}
	var entries []registry.Entry
	if err := json.Unmarshal(s.Raw, &entries); err != nil {
		return nil, fmt.Errorf("state file %s: %w", f.Path, err)
	}
	return entries, nil
}

// Save replaces the file as a whole: it is the old or the new one, never a
// part of either.
func (f *StateFile) Save(entries []registry.Entry) error {
	slices.SortFunc(entries, registry.Entry.Compare)
	raw, err := json.Marshal(entries)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	text, err := json.Marshal(state{Version: stateVersion, Sum: sum(raw), Raw: raw})
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := statefile.Replace(f.Path, text); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}

func sum(raw []byte) string {
	s := sha256.Sum256(raw)
	return hex.EncodeToString(s[:])
}
