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

// DefaultKeys is the annotation that service keys are read from: the one that a bridge
// writes into ServiceEntries.
const DefaultKeys = serviceentry.AnnotationKeys

// Keys says which annotation and label of an object hold the service keys that it
// provides.
//
// The text is a list of service keys, separated by commas or white space:
// `providers:INTERFACE:VERSION:GROUP`, or an interface alone where it has neither
// version nor group. `@PORT` after a key names its port, by name or number; it may be
// missing if there is only one. A label, in which Kubernetes allows no such text, is
// an interface.
type Keys struct {
	Annotation string // of Services, Pods, ServiceEntries and WorkloadEntries; empty: none
	Label      string // of the same; empty: none
}

// maxKeys bounds the keys that one object may carry.
const maxKeys = 1000

// objectKey is a service key of an object.
type objectKey struct {
	key  naming.ServiceKey
	port string // by name or number; empty: the only one
}

func (k Keys) parse(client string, m *meta.ObjectMeta) (keys []objectKey, skipped []metadata.PublicationError) {
	for _, text := range []string{lookup(m.Annotations, k.Annotation), lookup(m.Labels, k.Label)} {
		parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' })
		for _, part := range parts {
			key, reason := parseKey(part)
			if reason == "" && len(keys) == maxKeys {
				reason = "is one key more than the " + strconv.Itoa(maxKeys) + " that an object may carry"
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
		return k, "is no key of providers; write providers:INTERFACE:VERSION:GROUP"
	}
	return objectKey{key, port}, ""
}

// hostPort is a port of a host.
type hostPort struct {
	number uint16
	name   string
	target string // name or number of the Pod's
}

// portOf returns the port of a host that the key is for.
func (k objectKey) portOf(ports []hostPort) (number uint16, reason string) {
	if k.port == "" {
		if len(ports) == 1 {
			return ports[0].number, ""
		}
		return 0, "names no port, and its host has " + strconv.Itoa(len(ports)) + "; write KEY@PORT"
	}
	for _, is := range []func(hostPort) bool{ // the port of the host takes precedence
		func(p hostPort) bool { return p.name == k.port || strconv.Itoa(int(p.number)) == k.port },
		func(p hostPort) bool { return p.target == k.port },
	} {
		if i := slices.IndexFunc(ports, is); i >= 0 {
			return ports[i].number, ""
		}
	}
	return 0, "names port " + naming.Quote(k.port) + ", which its host does not have"
}
