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

// DefaultKeys is the annotation that service keys are read from: the one that
// ServiceEntries have them in that a bridge writes.
const DefaultKeys = serviceentry.AnnotationKeys

// Keys says where objects carry the service keys of what they provide.
//
// The text is a list of service keys, separated by commas or white space:
// `providers:INTERFACE:VERSION:GROUP`, or an interface alone where it has neither
// version nor group. `@PORT` after a key names the port that it is called at,
// by name or number; it may be missing where there is only one. A label, of
// which Kubernetes allows no such text, is an interface.
type Keys struct {
	Annotation string // of Services, Pods, ServiceEntries and WorkloadEntries; empty: none
	Label      string // of the same; empty: none
}

// maxKeys bounds the keys that one object may carry.
const maxKeys = 1000

// wish is a key that an object carries.
type wish struct {
	key  naming.ServiceKey
	port string // by name or number; empty: the only one
}

// of returns the keys that an object carries.
func (k Keys) of(client string, m *meta.ObjectMeta) (wishes []wish, skipped []metadata.PublicationError) {
	for _, text := range []string{lookup(m.Annotations, k.Annotation), lookup(m.Labels, k.Label)} {
		words := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' })
		for _, word := range words {
			w, reason := parseWish(word)
			if reason == "" && len(wishes) == maxKeys {
				reason = "is one key more than the " + strconv.Itoa(maxKeys) + " that an object may carry"
			}
			if reason != "" {
				skipped = append(skipped, metadata.PublicationError{Client: client, Text: naming.Quote(word), Reason: reason})
				if len(skipped) == maxKeys {
					return wishes, skipped
				}
				continue
			}
			wishes = append(wishes, w)
		}
	}
	return wishes, skipped
}

func lookup(m map[string]string, name string) string {
	if name == "" {
		return ""
	}
	return m[name]
}

func parseWish(word string) (w wish, reason string) {
	text, port, named := strings.Cut(word, "@")
	if named && port == "" {
		return w, "names no port after @"
	}
	if !strings.Contains(text, ":") {
		text = naming.Providers + ":" + text + "::"
	}
	key, err := naming.ParseServiceKey(text)
	switch {
	case err != nil:
		return w, err.Error()
	case key.Category != naming.Providers:
		return w, "is no key of providers; write providers:INTERFACE:VERSION:GROUP"
	}
	return wish{key, port}, ""
}

// A port of a host, as keys name it.
type port struct {
	number uint16
	name   string
	target string // as a Pod names or numbers it
}

// at returns which port of a host a wish is for.
func (w wish) at(ports []port) (number uint16, reason string) {
	if w.port == "" {
		if len(ports) == 1 {
			return ports[0].number, ""
		}
		return 0, "names no port, and its host has " + strconv.Itoa(len(ports)) + "; write KEY@PORT"
	}
	for _, is := range []func(port) bool{ // the port of the host before that of the pod
		func(p port) bool { return p.name == w.port || strconv.Itoa(int(p.number)) == w.port },
		func(p port) bool { return p.target == w.port },
	} {
		if i := slices.IndexFunc(ports, is); i >= 0 {
			return ports[i].number, ""
		}
	}
	return 0, "names port " + naming.Quote(w.port) + ", which its host does not have"
}
