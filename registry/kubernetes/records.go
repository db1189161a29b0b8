package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

// configMaps keeps records in a ConfigMap for each kind, beside the objects.
type configMaps struct {
	api              *API
	owner, namespace string
}

// Recorder implements Store.
func (a *API) Recorder(owner, namespace string) registry.Recorder {
	return configMaps{a, owner, namespace}
}

func (c configMaps) ref(kind string) ref {
	return ref{configMap, c.namespace, recordsName(c.owner, kind)}
}

// Records implements registry.Recorder.
func (c configMaps) Records(ctx context.Context, kind string) (map[string]string, error) {
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

// Record implements registry.Recorder. It changes one text alone: other replicas write
// others.
func (c configMaps) Record(ctx context.Context, kind, name, text string) error {
	if len(text) > maxRecords {
		return fmt.Errorf("%w: a record of %d bytes, a ConfigMap may have %d", registry.ErrRefused, len(text), maxRecords)
	}
	r, ctx := c.ref(kind), unlogged(ctx)
	var value any // null deletes
	if text != "" {
		value = text
	}
	patch := metadata.JSON(map[string]any{"data": map[string]any{name: value}})
	how := metav1.PatchOptions{FieldManager: c.api.manager}
	_, err := c.api.objects(r).Patch(ctx, r.name, types.MergePatchType, []byte(patch), how)
	if !apierrors.IsNotFound(err) || !isObject(err, r.name) {
		return explain(err, "patch", r)
	}
	if text == "" {
		return nil
	}
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": configMap, "data": map[string]any{name: text},
		"metadata": map[string]any{"name": r.name, "labels": map[string]any{serviceentry.LabelManager: serviceentry.Manager}},
	}}
	_, err = c.api.objects(r).Create(ctx, made, metav1.CreateOptions{FieldManager: c.api.manager})
	return explain(err, "create", r)
}

// hiddenFiles keeps records in a hidden file for each kind, which neither istiod nor Argo CD
// reads.
type hiddenFiles struct {
	directory *Directory
	owner     string
}

// Recorder implements Store.
func (d *Directory) Recorder(owner, _ string) registry.Recorder { return hiddenFiles{d, owner} }

func (h hiddenFiles) file(kind string) string { return "." + recordsName(h.owner, kind) }

// Records implements registry.Recorder. Its error wraps registry.ErrRefused if an operator
// has to mend a file or allow something. A disk that fails or is full is tried again.
func (h hiddenFiles) Records(_ context.Context, kind string) (map[string]string, error) {
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
func (h hiddenFiles) Record(ctx context.Context, kind, name, text string) error {
	all, err := h.Records(ctx, kind)
	if err != nil {
		return err
	}
	if all[name] = text; text == "" {
		delete(all, name)
	}
	next := metadata.JSON(all)
	switch {
	case len(next) > maxFile:
		return fmt.Errorf("%w: records of %d bytes, a file may have %d", registry.ErrRefused, len(next), maxFile)
	case len(all) > 0:
		err = h.directory.replace(h.file(kind), []byte(next+"\n"))
	default:
		if err = os.Remove(filepath.Join(h.directory.path, h.file(kind))); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return explainFile(err)
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
