package kube

import (
	"slices"
	"strconv"
	"strings"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
)

// DefaultKeys is the default annotation with service keys. A bridge writes it into
// ServiceEntries.
const DefaultKeys = serviceentry.AnnotationKeys

// Keys names the annotation and the label that hold the service keys of a Service, Pod,
// ServiceEntry or WorkloadEntry. An empty name means none.
//
// The text is a list of service keys, separated by commas or white space. A key is
// `providers:INTERFACE:VERSION:GROUP`, or only the interface if it has neither version nor
// group. `@PORT` after a key names its port, by name or number. It may be left out if the
// host has only one port. In a label, whose syntax is narrower, the text is one interface.
type Keys struct {
	Annotation string
	Label      string
}

// maxKeys bounds the keys that one object may carry.
const maxKeys = 1000

// objectKey is a service key of an object.
type objectKey struct {
	key  naming.ServiceKey
	port string // name or number; empty for the only port
}

// parse returns the keys in the metadata of an object, and the texts that are skipped, with
// the reason.
func (k Keys) parse(client string, m *meta.ObjectMeta) (keys []objectKey, skipped []metadata.PublicationError) {
	for _, text := range []string{lookup(m.Annotations, k.Annotation), lookup(m.Labels, k.Label)} {
		for _, part := range strings.FieldsFunc(text, isKeySeparator) {
			key, reason := parseKey(part)
			if reason == "" && len(keys) == maxKeys {
				reason = "exceeds the maximum of " + strconv.Itoa(maxKeys) + " keys in one object"
			}
			if reason != "" {
				skipped = append(skipped, metadata.PublicationError{Client: client, Text: naming.Quote(part), Reason: reason})
				if len(skipped) == maxKeys {
					return keys, skipped
				}
				continue
			}
			keys = append(keys, key)
		}
	}
	return keys, skipped
}

func isKeySeparator(r rune) bool { return strings.ContainsRune(", \n\t\r", r) }

// lookup returns the value of a name, which is empty for an empty name.
func lookup(m map[string]string, name string) string {
	if name == "" {
		return ""
	}
	return m[name]
}

func parseKey(s string) (k objectKey, reason string) {
	text, port, named := strings.Cut(s, "@")
	if named && port == "" {
		return k, "names no port after @"
	}
	if !strings.Contains(text, ":") {
		text = naming.Providers + ":" + text + "::"
	}
	key, err := naming.ParseServiceKey(text)
	switch {
	case err != nil:
		return k, err.Error()
	case key.Category != naming.Providers:
		return k, "is not a key of providers; write providers:INTERFACE:VERSION:GROUP"
	}
	return objectKey{key, port}, ""
}

// hostPort is a port of a host.
type hostPort struct {
	number uint16
	name   string
	target string // name or number of the Pod's port
}

// portOf returns the number of the port that the key is for, or the reason why there is none.
func (k objectKey) portOf(ports []hostPort) (number uint16, reason string) {
	if k.port == "" {
		if len(ports) == 1 {
			return ports[0].number, ""
		}
		return 0, "names no port, and its host has " + strconv.Itoa(len(ports)) + "; write KEY@PORT"
	}
	for _, matches := range []func(hostPort) bool{ // the port of the host takes precedence over the Pod's
		func(p hostPort) bool { return p.name == k.port || strconv.Itoa(int(p.number)) == k.port },
		func(p hostPort) bool { return p.target == k.port },
	} {
		if i := slices.IndexFunc(ports, matches); i >= 0 {
			return ports[i].number, ""
		}
	}
	return 0, "names port " + naming.Quote(k.port) + ", which its host does not have"
}
