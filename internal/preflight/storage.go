package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/xds-bridge/xds-bridge/config"
)

// StorageErrors returns what is wrong with the files that the process writes. It runs
// without them, so that none of it keeps it from starting.
func StorageErrors(cfg *config.Config) config.Errors {
	var errs config.Errors
	if dir := cfg.State.Dir; dir != "" {
		if err := tryDir(dir); err != nil {
			errs = append(errs, cfg.ErrorAt("state.dir", "what is served cannot be kept there: %v", err))
		}
	}
	if file := cfg.Audit.File; file != "" {
		if err := tryDir(filepath.Dir(file)); err != nil {
			errs = append(errs, cfg.ErrorAt("audit.file", "decisions cannot be kept there: %v", err))
		}
	}
	return errs
}

// tryDir writes a byte: a disk that is full takes files without any.
func tryDir(dir string) error {
	f, err := os.CreateTemp(dir, ".xds-bridge-try-*")
	if err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// CheckStorage judges what StorageErrors finds.
func CheckStorage(cfg *config.Config) func(context.Context, *Findings) {
	return func(_ context.Context, f *Findings) {
		for _, e := range StorageErrors(cfg) {
			f.Warn("storage", e.Error(), "make the directory, give this user the right to write there, or free space on its disk")
		}
	}
}
