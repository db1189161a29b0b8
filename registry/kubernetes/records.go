package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// configMap is the kind of the objects in which records are stored.
const configMap = "ConfigMap"

// recordsName returns the name of the ConfigMap with the records of a kind. The file has
// the same name after a dot.
func recordsName(owner, kind string) string {
	return "xds-bridge." + metadata.OwnerMark(owner) + "." + kind
}

// maxRecords is the maximum size of a ConfigMap in bytes:
// https://kubernetes.io/docs/concepts/configuration/configmap/
const maxRecords = 1 << 20

// configMapRecorder stores the records of each kind in a ConfigMap, in the namespace of the
// objects.
type configMapRecorder struct {
	api              *API
	owner, namespace string
}

// Recorder implements Store.
func (a *API) Recorder(owner, namespace string) registry.Recorder {
	return configMapRecorder{a, owner, namespace}
}

func (c configMapRecorder) refOf(kind string) objectRef {
	return objectRef{configMap, c.namespace, recordsName(c.owner, kind)}
}

// Records implements registry.Recorder.
func (c configMapRecorder) Records(ctx context.Context, kind string) (map[string]string, error) {
	r := c.refOf(kind)
	u, err := c.api.clientFor(r).Get(withoutLog(ctx), r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isObject(err, r.name) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, explain(err, "get", r)
	}
	if u.GetKind() != configMap {
		return nil, fmt.Errorf("expected a %s, got %q", configMap, u.GetKind())
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("%w: ConfigMap %s: %w; delete it", registry.ErrRefused, r.name, err)
	}
	return data, nil
}

// Record implements registry.Recorder. It changes only the given texts, because other
// replicas write the others. If the ConfigMap would be too large with all of them, it stores
// them one by one, the shortest first: an empty text deletes, and makes room.
func (c configMapRecorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	r, ctx, size := c.refOf(kind), withoutLog(ctx), 0
	for _, text := range texts {
		size += len(text)
	}
	if size <= maxRecords {
		if verb, err := c.patchOrCreate(ctx, r, texts); err == nil || !apierrors.IsInvalid(err) {
			return explain(err, verb, r)
		}
	}
	refused := make(registry.Refused)
	for _, name := range slices.SortedFunc(maps.Keys(texts), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(texts[a]), len(texts[b])), cmp.Compare(a, b))
	}) {
		if n := len(texts[name]); n > maxRecords {
			refused[name] = fmt.Errorf("%w: record of %d bytes, a ConfigMap may have at most %d",
				registry.ErrRefused, n, maxRecords)
			continue
		}
		verb, err := c.patchOrCreate(ctx, r, map[string]string{name: texts[name]})
		if err = explain(err, verb, r); errors.Is(err, registry.ErrRefused) {
			refused[name] = err
		} else if err != nil {
			return err
		}
	}
	return refused.Err()
}

// patchOrCreate patches texts into a ConfigMap, or creates the ConfigMap if it does not
// exist. It returns the verb of its last request, and the API server's error.
func (c configMapRecorder) patchOrCreate(
	ctx context.Context, r objectRef, texts map[string]string,
) (verb string, err error) {
	data := make(map[string]any, len(texts)) // in a merge patch, null deletes a key
	for name, text := range texts {
		if data[name] = nil; text != "" {
			data[name] = text
		}
	}
	how := metav1.PatchOptions{FieldManager: c.api.manager}
	patch := []byte(metadata.JSON(map[string]any{"data": data}))
	_, err = c.api.clientFor(r).Patch(ctx, r.name, types.MergePatchType, patch, how)
	if !apierrors.IsNotFound(err) || !isObject(err, r.name) {
		return "patch", err
	}
	maps.DeleteFunc(data, func(_ string, text any) bool { return text == nil })
	if len(data) == 0 {
		return "patch", nil
	}
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": configMap, "data": data,
		"metadata": map[string]any{
			"name": r.name, "labels": map[string]any{serviceentry.LabelManager: serviceentry.Manager},
		},
	}}
	_, err = c.api.clientFor(r).Create(ctx, made, metav1.CreateOptions{FieldManager: c.api.manager})
	return "create", err
}

// fileRecorder stores the records of each kind in a hidden file, which neither istiod nor
// Argo CD reads.
type fileRecorder struct {
	directory *Directory
	owner     string
}

// Recorder implements Store.
func (d *Directory) Recorder(owner, _ string) registry.Recorder { return fileRecorder{d, owner} }

func (h fileRecorder) fileName(kind string) string { return "." + recordsName(h.owner, kind) }

// Records implements registry.Recorder. Its error wraps registry.ErrRefused if an operator
// has to repair the file or allow access to it. For a disk that fails it does not, so that
// the caller retries.
func (h fileRecorder) Records(_ context.Context, kind string) (map[string]string, error) {
	all := make(map[string]string)
	path := filepath.Join(h.directory.path, h.fileName(kind))
	text, err := h.directory.readFile(h.fileName(kind))
	if err != nil {
		return nil, explainFile(err)
	}
	if text == nil {
		return all, nil
	}
	if err = json.Unmarshal(text, &all); err == nil && all == nil {
		err = errors.New("null is not an object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: records in %s: %w; repair or delete the file", registry.ErrRefused, path, err)
	}
	return all, nil
}

// Record implements registry.Recorder.
func (h fileRecorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	kept, err := h.Records(ctx, kind)
	if err != nil {
		return err
	}
	all, refused := registry.MergeRecords(kept, texts, maxFile)
	if len(all) > 0 {
		err = h.directory.replaceFile(h.fileName(kind), []byte(metadata.JSON(all)+"\n"))
	} else if err = os.Remove(filepath.Join(h.directory.path, h.fileName(kind))); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return cmp.Or(explainFile(err), refused.Err())
}

// explainFile wraps an error of a file with records. It is a registry.ErrRefused if access
// is denied.
func explainFile(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: records: %w", registry.ErrRefused, err)
	}
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	return nil
}
