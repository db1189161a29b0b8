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

// configMap is the kind of the objects that keep records.
const configMap = "ConfigMap"

func recordsName(owner, kind string) string {
	return "xds-bridge." + metadata.OwnerMark(owner) + "." + kind
}

// maxRecords is how many bytes a ConfigMap may have:
// https://kubernetes.io/docs/concepts/configuration/configmap/
const maxRecords = 1 << 20

// configMapRecorder keeps records in a ConfigMap for each kind, beside the objects.
type configMapRecorder struct {
	api              *API
	owner, namespace string
}

// Recorder implements Store.
func (a *API) Recorder(owner, namespace string) registry.Recorder {
	return configMapRecorder{a, owner, namespace}
}

func (c configMapRecorder) ref(kind string) objectRef {
	return objectRef{configMap, c.namespace, recordsName(c.owner, kind)}
}

// Records implements registry.Recorder.
func (c configMapRecorder) Records(ctx context.Context, kind string) (map[string]string, error) {
	r := c.ref(kind)
	u, err := c.api.objects(r).Get(unlogged(ctx), r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isObject(err, r.name) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, explain(err, "get", r)
	}
	if u.GetKind() != configMap {
		return nil, fmt.Errorf("the answer is no %s but %q", configMap, u.GetKind())
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("%w: ConfigMap %s: %w; delete it", registry.ErrRefused, r.name, err)
	}
	return data, nil
}

// Record implements registry.Recorder. It changes these texts alone: other replicas
// write others. If together they make the ConfigMap too large, each is stored by itself,
// first what makes room.
func (c configMapRecorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	r, ctx, size := c.ref(kind), unlogged(ctx), 0
	for _, text := range texts {
		size += len(text)
	}
	if size <= maxRecords {
		if verb, err := c.store(ctx, r, texts); err == nil || !apierrors.IsInvalid(err) {
			return explain(err, verb, r)
		}
	}
	refused := make(registry.Refused)
	for _, name := range slices.SortedFunc(maps.Keys(texts), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(texts[a]), len(texts[b])), cmp.Compare(a, b))
	}) {
		if n := len(texts[name]); n > maxRecords {
			refused[name] = fmt.Errorf("%w: a record of %d bytes, a ConfigMap may have %d", registry.ErrRefused, n, maxRecords)
			continue
		}
		verb, err := c.store(ctx, r, map[string]string{name: texts[name]})
		if err = explain(err, verb, r); errors.Is(err, registry.ErrRefused) {
			refused[name] = err
		} else if err != nil {
			return err
		}
	}
	return refused.Err()
}

// store patches texts into a ConfigMap, or creates it. It returns what it did last and
// the error of the API server.
func (c configMapRecorder) store(ctx context.Context, r objectRef, texts map[string]string) (verb string, err error) {
	data := make(map[string]any, len(texts)) // null deletes
	for name, text := range texts {
		if data[name] = nil; text != "" {
			data[name] = text
		}
	}
	how := metav1.PatchOptions{FieldManager: c.api.manager}
	_, err = c.api.objects(r).Patch(ctx, r.name, types.MergePatchType, []byte(metadata.JSON(map[string]any{"data": data})), how)
	if !apierrors.IsNotFound(err) || !isObject(err, r.name) {
		return "patch", err
	}
	maps.DeleteFunc(data, func(_ string, text any) bool { return text == nil })
	if len(data) == 0 {
		return "patch", nil
	}
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": configMap, "data": data,
		"metadata": map[string]any{"name": r.name, "labels": map[string]any{serviceentry.LabelManager: serviceentry.Manager}},
	}}
	_, err = c.api.objects(r).Create(ctx, made, metav1.CreateOptions{FieldManager: c.api.manager})
	return "create", err
}

// fileRecorder keeps records in a hidden file for each kind, which neither istiod nor Argo CD
// reads.
type fileRecorder struct {
	directory *Directory
	owner     string
}

// Recorder implements Store.
func (d *Directory) Recorder(owner, _ string) registry.Recorder { return fileRecorder{d, owner} }

func (h fileRecorder) file(kind string) string { return "." + recordsName(h.owner, kind) }

// Records implements registry.Recorder. Its error wraps registry.ErrRefused if an operator
// has to mend a file or allow something. A disk that fails or is full is tried again.
func (h fileRecorder) Records(_ context.Context, kind string) (map[string]string, error) {
	all := make(map[string]string)
	path := filepath.Join(h.directory.path, h.file(kind))
	text, err := h.directory.readFile(h.file(kind))
	if err != nil {
		return nil, explainFile(err)
	}
	if text == nil {
		return all, nil
	}
	if err = json.Unmarshal(text, &all); err == nil && all == nil {
		err = errors.New("null is no object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: records in %s: %w; mend or delete it", registry.ErrRefused, path, err)
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
		err = h.directory.replace(h.file(kind), []byte(metadata.JSON(all)+"\n"))
	} else if err = os.Remove(filepath.Join(h.directory.path, h.file(kind))); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return cmp.Or(explainFile(err), refused.Err())
}

// explainFile returns an error of a file of records. If a right is missing, it is a
// registry.ErrRefused.
func explainFile(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: records: %w", registry.ErrRefused, err)
	}
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	return nil
}
