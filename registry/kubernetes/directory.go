package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Directory is a Store in a directory. It has a YAML file for each name, with a
// ServiceEntry and the DestinationRule beside it, if there is one. The bytes depend on
// the objects alone. A file is replaced as a whole: it is written under a name that
// istiod does not read, and renamed.
type Directory struct{ path string }

// NewDirectory returns a store in a directory, which has to exist.
func NewDirectory(path string) *Directory { return &Directory{path} }

const extension = ".yaml"

// List implements Store. Objects in other files than that of their name are Elsewhere.
func (d *Directory) List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error) {
	files, err := d.files()
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	var all []serviceentry.Object
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		documents, err := d.read(file)
		if errors.Is(err, registry.ErrRefused) || errors.Is(err, fs.ErrPermission) { // listed by name alone: Get returns the error
			all = append(all, serviceentry.Object{Metadata: serviceentry.ObjectMeta{Namespace: namespace, Name: file}})
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, o := range documents {
			if o.Kind == kind && o.Metadata.Namespace == namespace {
				o.Elsewhere = o.Metadata.Name+extension != file
				all = append(all, o.Object)
			}
		}
	}
	return all, nil
}

// files returns the files that istiod reads, which include those in subdirectories.
func (d *Directory) files() (all []string, err error) {
	err = fs.WalkDir(os.DirFS(d.path), ".", func(path string, f fs.DirEntry, err error) error {
		switch extended := filepath.Ext(path); {
		case path != "." && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)): // it went, or we may not read it
			return fs.SkipDir
		case err != nil:
			return err
		case f.IsDir() && f.Name() == ".git": // it is large and has no objects
			return fs.SkipDir
		case !f.IsDir() && (extended == extension || extended == ".yml"):
			all = append(all, path)
		}
		return nil
	})
	return all, err
}

// maxFile is more than the bytes of any file of ours.
const maxFile = 4 << 20

// A fileDocument is an object in a file.
type fileDocument struct {
	serviceentry.Object

	text string // without separators
}

// read returns the documents of a file; none if there is no file.
func (d *Directory) read(name string) ([]fileDocument, error) {
	path := filepath.Join(d.path, name)
	text, err := d.readFile(name)
	if err != nil {
		return nil, err
	}
	var all []fileDocument
	for _, one := range separators.Split(string(text), -1) {
		if strings.TrimSpace(one) == "" {
			continue
		}
		o, err := decode(one)
		if err != nil {
			return nil, fmt.Errorf("%w: %s is no ServiceEntry, mend or delete it: %w", registry.ErrRefused, path, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// readFile reads a file of at most maxFile bytes, nil if there is none. If the directory
// is missing that is an error, because its content is unknown.
func (d *Directory) readFile(name string) ([]byte, error) {
	text, err := readFile(filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(d.path); err != nil {
			return nil, fmt.Errorf("directory: %w", err)
		}
		return nil, nil
	}
	return text, err
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && isLink(path):
		return nil, fmt.Errorf("%w: %s is a link that cannot be followed, delete it: %w", registry.ErrRefused, path, err)
	case err != nil:
		return nil, fmt.Errorf("directory: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%w: %s is no file of at most %d bytes, delete it", registry.ErrRefused, path, maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	return text, nil
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// separator divides the documents of a file that we write.
const separator = "\n---\n"

// separators matches the line of --- before a document, which may continue with a comment
// or the document itself.
var separators = regexp.MustCompile(`(?m)^---(?:[ \t\r]|$)`)

var errRest = errors.New("a further document begins without a line of ---")

// checkSingle returns an error if a text is more than one document to YAML.
func checkSingle(text string) error {
	stream := goyaml.NewDecoder(strings.NewReader(text))
	for range 2 {
		var document any
		if err := stream.Decode(&document); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	return errRest
}

// decode reads a document. Its version is a hash of it. Of another kind of object it
// returns the kind alone.
func decode(text string) (fileDocument, error) {
	d := fileDocument{text: strings.TrimSpace(text)}
	if err := checkSingle(text); err != nil {
		return d, err
	}
	inJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return d, err
	}
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(inJSON, &kind); err != nil {
		return d, err
	}
	if d.Kind = kind.Kind; d.Kind != serviceentry.ObjectKind && d.Kind != serviceentry.RuleKind {
		return d, nil
	}
	d.Object, err = serviceentry.ParseObject(inJSON)
	sum := sha256.Sum256([]byte(d.text))
	d.Metadata.ResourceVersion = hex.EncodeToString(sum[:8])
	return d, err
}

// file returns the objects in the file of a name: the ServiceEntry and the rule of that
// name, or one of them.
func (d *Directory) file(namespace, name string) (map[string]fileDocument, error) {
	all, err := d.read(name + extension)
	if err != nil {
		return nil, err
	}
	objects := make(map[string]fileDocument, len(all))
	for _, o := range all {
		_, twice := objects[o.Kind]
		if twice || o.Kind != serviceentry.ObjectKind && o.Kind != serviceentry.RuleKind || o.Metadata.Name != name || o.Metadata.Namespace != namespace {
			return nil, fmt.Errorf("%w: %s holds more than a ServiceEntry of that name and namespace %s and its DestinationRule: keep others in files of their own",
				registry.ErrRefused, filepath.Join(d.path, name+extension), namespace) // the next write would delete them
		}
		objects[o.Kind] = o
	}
	return objects, nil
}

// Get implements Store.
func (d *Directory) Get(ctx context.Context, kind, namespace, name string) (*serviceentry.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	objects, err := d.file(namespace, name)
	o, there := objects[kind]
	if err != nil || !there {
		return nil, err
	}
	return &o.Object, nil
}

// change replaces an object of a file by a text; an empty one deletes it. The error is
// registry.ErrConflict if the file has another version of the object. The other object
// of the file is kept.
func (d *Directory) change(o serviceentry.Object, text string) error {
	m := o.Metadata
	objects, err := d.file(m.Namespace, m.Name)
	if err != nil {
		return err
	}
	if objects[o.Kind].Metadata.ResourceVersion != m.ResourceVersion {
		return fmt.Errorf("file %s: %w", m.Name+extension, registry.ErrConflict)
	}
	objects[o.Kind] = fileDocument{text: text}
	var texts []string
	for _, kind := range []string{serviceentry.ObjectKind, serviceentry.RuleKind} {
		if text := objects[kind].text; text != "" {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		err = os.Remove(filepath.Join(d.path, m.Name+extension))
	} else {
		err = d.replace(m.Name+extension, []byte(strings.Join(texts, separator)+"\n"))
	}
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	return d.sync()
}

// Put implements Store.
func (d *Directory) Put(ctx context.Context, o serviceentry.Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := encode(o)
	if err != nil {
		return err
	}
	return d.change(o, text)
}

// Delete implements Store.
func (d *Directory) Delete(ctx context.Context, o serviceentry.Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.change(o, "")
}

// encode returns an object as YAML, always the same for the same object. An object that
// YAML would change is refused.
func encode(o serviceentry.Object) (string, error) {
	o.Metadata.ResourceVersion, o.Metadata.UID = "", ""
	text, err := yaml.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	var back serviceentry.Object
	if err := yaml.Unmarshal(text, &back); err != nil || metadata.JSON(back) != metadata.JSON(o) {
		return "", fmt.Errorf("%w: YAML does not keep it unchanged", registry.ErrRefused)
	}
	return strings.TrimSpace(string(text)), nil
}

// replace replaces a file. After an error there is the old or the new one, whole.
func (d *Directory) replace(name string, text []byte) error {
	f, err := os.CreateTemp(d.path, ".xds-bridge-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // if it was not renamed
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(d.path, name)); err != nil {
		return err
	}
	return d.sync()
}

// sync makes the names of files durable.
func (d *Directory) sync() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Try implements Store.
func (d *Directory) Try(ctx context.Context, _, _ string) error {
	f, err := os.CreateTemp(d.path, ".xds-bridge-*")
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
