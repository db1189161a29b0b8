package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/xds-bridge/xds-bridge/config"
)

// StorageErrors returns an error for each directory in which the process cannot write a
// file. These errors are only warnings, because the process also runs without these files.
func StorageErrors(cfg *config.Config) config.Errors {
	var errs config.Errors
	if dir := cfg.State.Dir; dir != "" {
		if err := tryDir(dir); err != nil {
			errs = append(errs, cfg.ErrorAt("state.dir", "served sets cannot be recorded there: %v", err))
		}
	}
	if file := cfg.Audit.File; file != "" {
		if err := tryDir(filepath.Dir(file)); err != nil {
			errs = append(errs, cfg.ErrorAt("audit.file", "decisions cannot be written there: %v", err))
		}
	}
	return errs
}

// tryDir writes a file with one byte, because even a full disk accepts empty files. It
// removes the file.
func tryDir(dir string) error {
	f, err := os.CreateTemp(dir, ".xds-bridge-try-*")
	if err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// CheckStorage returns a check that warns of each error of StorageErrors.
func CheckStorage(cfg *config.Config) func(context.Context, *Findings) {
	return func(_ context.Context, f *Findings) {
		for _, e := range StorageErrors(cfg) {
			f.Warn("storage", e.Error(), "create the directory, allow this user to write there, or free space on its disk")
		}
	}
}
