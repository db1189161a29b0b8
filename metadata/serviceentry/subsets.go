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

// SubsetsKey is the key of the entry that asks for subsets of a host:
//
//	entry   #subsets          {"label":"version"}
//
// Which subsets there are follows from the endpoints that are stored, and not from
// those that are claimed: an endpoint that is held keeps its subset.
const SubsetsKey = registry.PartPrefix + "subsets"

// RuleKind is the kind of an Object that divides a host into subsets.
const RuleKind = "DestinationRule"

// AnnotationSubsets of a rule is the label by whose values it forms subsets.
const AnnotationSubsets = "xds-bridge/subset-label"

// A Subset is those endpoints of a host that have its labels.
type Subset struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

// subsets is the value of the entry.
type subsets struct {
	Label string `json:"label"`
}

func subsetsEntry(group registry.Group, label string) registry.Entry {
	return registry.Entry{Group: group, Key: SubsetsKey, Value: metadata.JSON(subsets{label})}
}

// AsksForSubsets reports whether the value of an entry of SubsetsKey is that of a Codec.
func AsksForSubsets(value string) bool { return subsetLabel(value) != "" }

func subsetLabel(value string) string {
	var s subsets
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return ""
	}
	return s.Label
}

// NewRule makes the DestinationRule that an entry asks for beside a ServiceEntry: of
// its name, host, owner and namespaces, with one subset for each value of the label.
func NewRule(service Object, e registry.Entry) (Object, error) {
	label := subsetLabel(e.Value)
	if label == "" {
		return Object{}, fmt.Errorf("%s: entry %q: no label of subsets: %s", e.Group, e.Key, e.Value)
	}
	of := service.Metadata
	o := Object{
		APIVersion: APIVersion, Kind: RuleKind,
		Metadata: ObjectMeta{
			Name: of.Name, Namespace: of.Namespace, Labels: map[string]string{LabelManager: Manager},
			Annotations: map[string]string{AnnotationSubsets: label},
		},
		Spec: ObjectSpec{ExportTo: service.Spec.ExportTo},
	}
	if len(service.Spec.Hosts) == 1 {
		o.Spec.Host = service.Spec.Hosts[0]
	}
	if name, ok := of.Labels[LabelRegistry]; ok {
		o.Metadata.Labels[LabelRegistry] = name
	}
	for _, k := range []string{AnnotationMark, AnnotationName, AnnotationKeys} {
		if v, ok := of.Annotations[k]; ok {
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

// subsetNames returns values of a label by the names of their subsets. A value that is
// a DNS label is its own name. Of others capitals become small, and what is no letter
// or digit a hyphen; where another value has that name, a hash of the value follows.
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
		if _, taken := names[name]; taken {
			const digits = 6
			name = name[:min(len(name), maxName-digits-1)] + "-" + metadata.Fingerprint(v, digits)
		}
		names[name] = v
	}
	return names
}

// SubsetsEntry returns the entry that a rule stands for beside a ServiceEntry, nil if there
// is none: the one that NewRule makes it of, or one that no Codec writes.
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
