package serviceentry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// SubsetsKey is the key of the entry that requests subsets of a host:
//
//	entry   #subsets          {"label":"version"}
//
// The subsets are those of the stored endpoints, not of the claimed ones: an endpoint
// whose deletion is held keeps its subset.
const SubsetsKey = registry.PartPrefix + "subsets"

// RuleKind is the kind of an Object that divides a host into subsets.
const RuleKind = "DestinationRule"

// AnnotationSubsets is the annotation of a rule that names the label of its subsets.
const AnnotationSubsets = "xds-bridge/subset-label"

// A Subset is the endpoints of a host that have its labels.
type Subset struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

// subsets is the value of the entry of SubsetsKey.
type subsets struct {
	Label string `json:"label"`
}

func subsetsEntry(group registry.Group, label string) registry.Entry {
	return registry.Entry{Group: group, Key: SubsetsKey, Value: metadata.JSON(subsets{label})}
}

// AsksForSubsets reports whether a Codec wrote the value of an entry of SubsetsKey.
func AsksForSubsets(value string) bool { return subsetLabel(value) != "" }

func subsetLabel(value string) string {
	var s subsets
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return ""
	}
	return s.Label
}

// NewRule returns the DestinationRule for a ServiceEntry and its entry of SubsetsKey. The
// rule has one subset for each value of the label.
func NewRule(service Object, e registry.Entry) (Object, error) {
	label := subsetLabel(e.Value)
	if label == "" {
		return Object{}, fmt.Errorf("%s: entry %q has no subset label: %s", e.Group, e.Key, e.Value)
	}
	o := Object{
		APIVersion: APIVersion, Kind: RuleKind,
		Metadata: ObjectMeta{
			Name: service.Metadata.Name, Namespace: service.Metadata.Namespace,
			Labels:      map[string]string{LabelManager: Manager},
			Annotations: map[string]string{AnnotationSubsets: label},
		},
		Spec: ObjectSpec{ExportTo: service.Spec.ExportTo},
	}
	if len(service.Spec.Hosts) == 1 {
		o.Spec.Host = service.Spec.Hosts[0]
	}
	if name, ok := service.Metadata.Labels[LabelRegistry]; ok {
		o.Metadata.Labels[LabelRegistry] = name
	}
	for _, k := range []string{AnnotationMark, AnnotationName, AnnotationKeys} {
		if v, ok := service.Metadata.Annotations[k]; ok {
			o.Metadata.Annotations[k] = v
		}
	}
	values := make(map[string]bool)
	for _, w := range service.Spec.Endpoints {
		values[w.Labels[label]] = true
	}
	delete(values, "")
	names := subsetNames(slices.Sorted(maps.Keys(values)))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		o.Spec.Subsets = append(o.Spec.Subsets, Subset{Name: name, Labels: map[string]string{label: names[name]}})
	}
	return o, nil
}

// subsetNames returns the values of a label by the names of their subsets. A value that
// is a DNS label is the name itself. The name of another value is in lower case with
// hyphens, and with a hash if the name is already used.
func subsetNames(values []string) map[string]string {
	names := make(map[string]string, len(values))
	for _, v := range values {
		if dnsLabel(v) {
			names[v] = v
		}
	}
	for _, v := range values {
		if dnsLabel(v) {
			continue
		}
		name := strings.NewReplacer(".", "-", "_", "-").Replace(strings.ToLower(v))
		if _, exists := names[name]; exists {
			const digits = 6
			name = name[:min(len(name), maxName-digits-1)] + "-" + metadata.Fingerprint(v, digits)
		}
		names[name] = v
	}
	return names
}

// SubsetsEntry undoes NewRule for a rule and its ServiceEntry, which may be nil. If the
// rule has other fields, the entry is one that a Codec does not write.
func (o Object) SubsetsEntry(service *Object) registry.Entry {
	e := subsetsEntry(o.Group(), o.Metadata.Annotations[AnnotationSubsets])
	if service != nil {
		if rule, err := NewRule(*service, e); err == nil && o.Same(rule) {
			return e
		}
	}
	e.Value = metadata.JSON(o.Spec)
	return e
}
