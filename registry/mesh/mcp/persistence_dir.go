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

// A DirRecorder is a registry.Recorder in a directory, which must exist. A text is the file
// <path>/<kind>/<name>. Every error wraps registry.ErrRefused, because retrying does not
// help with a disk.
type DirRecorder struct{ Path string }

var _ registry.Recorder = DirRecorder{}

// maxFileSize is more than the size of any text.
const maxFileSize = 16 << 20

// Records implements registry.Recorder.
func (d DirRecorder) Records(_ context.Context, kind string) (map[string]string, error) {
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
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(f.Name()) != "" {
			continue // such as a file that statefile.Replace left after a crash
		}
		if info.Size() > maxFileSize {
			return nil, fmt.Errorf("%w: %s has %d bytes, at most %d",
				registry.ErrRefused, filepath.Join(dir, f.Name()), info.Size(), maxFileSize)
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
func (d DirRecorder) Record(_ context.Context, kind string, texts map[string]string) error {
	refused := make(registry.Refused)
	for name, text := range texts {
		if err := d.replaceFile(kind, name, text); err != nil {
			refused[name] = fmt.Errorf("%w: %w", registry.ErrRefused, err)
		}
	}
	return refused.Err()
}

// replaceFile writes the file of a text, or removes it if the text is empty.
func (d DirRecorder) replaceFile(kind, name, text string) error {
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
