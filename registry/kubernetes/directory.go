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

// A Directory is a Store in a directory. For each name it has a YAML file with the
// ServiceEntry and, if there is one, the DestinationRule of that name. The same objects give
// the same bytes. A file is replaced as a whole: it is written under a name that istiod
// ignores, and renamed.
type Directory struct{ path string }

// NewDirectory returns a store in a directory, which must exist.
func NewDirectory(path string) *Directory { return &Directory{path} }

const extension = ".yaml"

// List implements Store. An object in a file that is not named after it is Elsewhere.
func (d *Directory) List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error) {
	files, err := d.objectFiles()
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	var all []serviceentry.Object
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		documents, err := d.readDocuments(file)
		if errors.Is(err, registry.ErrRefused) || errors.Is(err, fs.ErrPermission) {
			// It has only its name. Get returns the error.
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

// objectFiles returns the paths of all files that istiod reads, which include those in
// subdirectories.
func (d *Directory) objectFiles() (all []string, err error) {
	err = fs.WalkDir(os.DirFS(d.path), ".", func(path string, f fs.DirEntry, err error) error {
		isUnreadable := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
		switch ext := filepath.Ext(path); {
		case path != "." && isUnreadable: // a subdirectory that was deleted, or that we may not read
			return fs.SkipDir
		case err != nil:
			return err
		case f.IsDir() && f.Name() == ".git": // large, and without objects
			return fs.SkipDir
		case !f.IsDir() && (ext == extension || ext == ".yml"):
			all = append(all, path)
		}
		return nil
	})
	return all, err
}

// maxFile is more than the size of any file that we write.
const maxFile = 4 << 20

// A fileDocument is a YAML document in a file, which is one object.
type fileDocument struct {
	serviceentry.Object

	text string // without the lines of --- around it
}

// readDocuments returns the documents of a file. A file that does not exist has none.
func (d *Directory) readDocuments(name string) ([]fileDocument, error) {
	path := filepath.Join(d.path, name)
	text, err := d.readFile(name)
	if err != nil {
		return nil, err
	}
	var all []fileDocument
	for _, one := range documentStart.Split(string(text), -1) {
		if strings.TrimSpace(one) == "" {
			continue
		}
		o, err := decodeDocument(one)
		if err != nil {
			return nil, fmt.Errorf("%w: %s is not a ServiceEntry; repair or delete it: %w", registry.ErrRefused, path, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// readFile returns the content of a file of at most maxFile bytes, or nil if the file does
// not exist. If the directory does not exist, it fails, because the content is unknown.
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
		return nil, fmt.Errorf("%w: %s is a link that cannot be followed; delete it: %w", registry.ErrRefused, path, err)
	case err != nil:
		return nil, fmt.Errorf("directory: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%w: %s is not a regular file of at most %d bytes; delete it",
			registry.ErrRefused, path, maxFile)
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

// documentSeparator is between the documents of a file that we write.
const documentSeparator = "\n---\n"

// documentStart matches the --- that begins a document. A comment or the document itself may
// follow on the same line.
var documentStart = regexp.MustCompile(`(?m)^---(?:[ \t\r]|$)`)

var errSecondDocument = errors.New("a second document begins without a line of ---")

// checkSingle returns an error if a text is more than one YAML document.
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
	return errSecondDocument
}

// decodeDocument parses a document. The object's version is a hash of the text. An object of
// a kind that we do not write has only its kind.
func decodeDocument(text string) (fileDocument, error) {
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

// objectsInFile returns the objects in the file of a name, by kind: the ServiceEntry and the
// DestinationRule of that name, or one of them. A file with anything else is refused,
// because the next write would delete that.
func (d *Directory) objectsInFile(namespace, name string) (map[string]fileDocument, error) {
	all, err := d.readDocuments(name + extension)
	if err != nil {
		return nil, err
	}
	objects := make(map[string]fileDocument, len(all))
	for _, o := range all {
		_, twice := objects[o.Kind]
		isOurKind := o.Kind == serviceentry.ObjectKind || o.Kind == serviceentry.RuleKind
		if twice || !isOurKind || o.Metadata.Name != name || o.Metadata.Namespace != namespace {
			const format = "%w: %s holds more than a ServiceEntry of that name and namespace %s and its DestinationRule: " +
				"move other objects to files of their own"
			return nil, fmt.Errorf(format, registry.ErrRefused, filepath.Join(d.path, name+extension), namespace)
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
	objects, err := d.objectsInFile(namespace, name)
	o, there := objects[kind]
	if err != nil || !there {
		return nil, err
	}
	return &o.Object, nil
}

// replaceObject replaces an object in its file by a text, or deletes it if the text is
// empty. The other object in the file is not changed. The error is registry.ErrConflict if
// the file has another version of the object.
func (d *Directory) replaceObject(o serviceentry.Object, text string) error {
	m := o.Metadata
	objects, err := d.objectsInFile(m.Namespace, m.Name)
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
		err = d.replaceFile(m.Name+extension, []byte(strings.Join(texts, documentSeparator)+"\n"))
	}
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	return d.syncDirectory()
}

// Put implements Store.
func (d *Directory) Put(ctx context.Context, o serviceentry.Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := encodeObject(o)
	if err != nil {
		return err
	}
	return d.replaceObject(o, text)
}

// Delete implements Store.
func (d *Directory) Delete(ctx context.Context, o serviceentry.Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.replaceObject(o, "")
}

// encodeObject returns an object as YAML. The same object gives the same text. An object
// that YAML does not preserve is refused.
func encodeObject(o serviceentry.Object) (string, error) {
	o.Metadata.ResourceVersion, o.Metadata.UID = "", ""
	text, err := yaml.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	var back serviceentry.Object
	if err := yaml.Unmarshal(text, &back); err != nil || metadata.JSON(back) != metadata.JSON(o) {
		return "", fmt.Errorf("%w: YAML cannot store the object unchanged", registry.ErrRefused)
	}
	return strings.TrimSpace(string(text)), nil
}

// replaceFile replaces a file atomically: after an error, the old or the new content is
// there as a whole.
func (d *Directory) replaceFile(name string, text []byte) error {
	f, err := os.CreateTemp(d.path, ".xds-bridge-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails if it was renamed
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(d.path, name)); err != nil {
		return err
	}
	return d.syncDirectory()
}

// syncDirectory makes renamed and removed files durable.
func (d *Directory) syncDirectory() error {
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
