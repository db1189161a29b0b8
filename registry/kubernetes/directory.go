package kubernetes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Directory is a folder as a Store: a YAML file for each object, by its name. Its
// bytes depend on the object alone. A file is replaced as a whole; what it is
// written to before has no name that istiod reads.
type Directory struct{ path string }

// NewDirectory returns a store in a directory, which has to be there.
func NewDirectory(path string) *Directory { return &Directory{path} }

const extension = ".yaml"

// List implements Store. Files of others are left out.
func (d *Directory) List(ctx context.Context, namespace string) ([]serviceentry.Object, error) {
	files, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	var all []serviceentry.Object
	for _, f := range files {
		name, isYAML := strings.CutSuffix(f.Name(), extension)
		if !isYAML || f.IsDir() || strings.HasPrefix(name, ".") {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch o, err := d.read(name); {
		case err != nil: // it is unknown what that is, as a reading of it says
			all = append(all, serviceentry.Object{Metadata: serviceentry.ObjectMeta{Namespace: namespace, Name: name}})
		case o != nil && o.Kind == serviceentry.ObjectKind && o.Metadata.Namespace == namespace && o.Metadata.Name == name:
			all = append(all, *o)
		}
	}
	return all, nil
}

// maxFile is more than any file of ours has, in bytes.
const maxFile = 4 << 20

// read returns the object of a file; nil where there is none.
func (d *Directory) read(name string) (*serviceentry.Object, error) {
	path := filepath.Join(d.path, name+extension)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%w: %s is no file of at most %d bytes, delete it", registry.ErrRefused, path, maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	var o serviceentry.Object
	if err := yaml.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("%w: %s is no ServiceEntry, mend or delete it: %w", registry.ErrRefused, path, err)
	}
	if bytes.Contains(text, []byte("\n---")) { // what follows would go with a next writing
		return nil, fmt.Errorf("%w: %s holds more than one object, keep the others in files of their own", registry.ErrRefused, path)
	}
	sum := sha256.Sum256(text)
	o.Metadata.ResourceVersion = hex.EncodeToString(sum[:8])
	return &o, nil
}

// Get implements Store.
func (d *Directory) Get(ctx context.Context, namespace, name string) (*serviceentry.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, err := d.read(name)
	if o != nil && (o.Metadata.Namespace != namespace || o.Metadata.Name != name) {
		o.Metadata.Annotations = nil // nothing of ours, which has its place
	}
	return o, err
}

// unchanged reports whether the file of an object is of its version.
func (d *Directory) unchanged(o serviceentry.Object) error {
	now, err := d.read(o.Metadata.Name)
	if err != nil {
		return err
	}
	version := ""
	if now != nil {
		version = now.Metadata.ResourceVersion
	}
	if version != o.Metadata.ResourceVersion {
		return fmt.Errorf("file %s: %w", o.Metadata.Name+extension, registry.ErrConflict)
	}
	return nil
}

// Put implements Store.
func (d *Directory) Put(ctx context.Context, o serviceentry.Object) error {
	if err := errors.Join(ctx.Err(), d.unchanged(o)); err != nil {
		return err
	}
	o.Metadata.ResourceVersion, o.Metadata.UID = "", ""
	text, err := encode(o)
	if err != nil {
		return err
	}
	if err := d.replace(o.Metadata.Name+extension, text); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	return nil
}

// encode returns the bytes of a file, which are the same for the same object. What
// YAML does not keep as it is is refused.
func encode(o serviceentry.Object) ([]byte, error) {
	text, err := yaml.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	var back serviceentry.Object
	if err := yaml.Unmarshal(text, &back); err != nil || metadata.JSON(back) != metadata.JSON(o) {
		return nil, fmt.Errorf("%w: YAML does not keep it as it is", registry.ErrRefused)
	}
	return text, nil
}

// replace replaces a file. After an error the old one or the new one is there, whole.
func (d *Directory) replace(name string, text []byte) error {
	f, err := os.CreateTemp(d.path, ".xds-bridge-*")
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	defer func() { _ = os.Remove(f.Name()) }() // where it was not renamed
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(d.path, name)); err != nil {
		return err //nolint:wrapcheck // it names the files
	}
	return d.sync()
}

// sync has the names of files be stored.
func (d *Directory) sync() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err //nolint:wrapcheck // it names the directory
	}
	return errors.Join(f.Sync(), f.Close())
}

// Delete implements Store.
func (d *Directory) Delete(ctx context.Context, o serviceentry.Object) error {
	if err := errors.Join(ctx.Err(), d.unchanged(o)); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(d.path, o.Metadata.Name+extension)); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	return d.sync()
}

// Try implements Probe.
func (d *Directory) Try(ctx context.Context, _ string) error {
	f, err := os.CreateTemp(d.path, ".xds-bridge-*")
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
