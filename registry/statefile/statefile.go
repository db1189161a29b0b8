// Package statefile writes the files in which a process saves its state for the next
// start.
package statefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace atomically replaces the content of a file, which only its owner can read.
// After a crash the file is the old or the new one, never a part of either. The
// directory must exist. The errors are those of package os and name the file.
func Replace(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
