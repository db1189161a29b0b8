package mcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/statefile"
)

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
