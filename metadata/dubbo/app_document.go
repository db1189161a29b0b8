package dubbo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Document lists what the instances of a revision provide: Dubbo's MetadataInfo.
type Document struct {
	App      string                     `json:"app"`
	Revision string                     `json:"revision"`
	Services map[string]DocumentService `json:"services"`
	Mark     string                     `json:"xdsb,omitempty"` // readers ignore unknown fields
}

// A DocumentService is one interface in one protocol: Dubbo's ServiceInfo. Java uses the
// fields Version and Group, and fails without Params.
type DocumentService struct {
	Name     string            `json:"name"`
	Group    string            `json:"group,omitempty"`
	Version  string            `json:"version,omitempty"`
	Protocol string            `json:"protocol"`
	Port     int               `json:"port,omitempty"`
	Path     string            `json:"path"`
	Params   map[string]string `json:"params"`
}

// document returns the document of an instance and its revision. It has two values that
// the instance has too. The weight is one, because some versions of dubbo-go read it only
// from the document. The tag is the other, because Java does not see its removal from
// the instance.
func (o *options) document(app string, interfaces []registry.Interface, in *instance) (revision, text string) {
	r := Document{App: app, Services: make(map[string]DocumentService), Mark: in.mark}
	for _, i := range interfaces {
		for _, p := range in.protocols {
			r.Services[matchKey(i, p.protocol)] = DocumentService{
				Name: i.Name, Group: i.Group, Version: i.Version, Protocol: p.protocol, Path: cmp.Or(p.path, i.Name),
				Params: documentParams(app, i, in),
			}
		}
	}
	r.Revision = o.Mark.Owner + o.Mark.Bridge + revisionSign + metadata.Fingerprint(metadata.JSON(r), revisionHash)
	return r.Revision, metadata.JSON(r)
}

func documentParams(app string, i registry.Interface, in *instance) map[string]string {
	params := map[string]string{paramApplication: app, paramInterface: i.Name, paramSide: "provider"}
	if i.Version != "" {
		params[paramVersion] = i.Version
	}
	if i.Group != "" {
		params[paramGroup] = i.Group
	}
	params[paramWeight] = strconv.FormatUint(uint64(in.weight()), 10)
	if in.tag != "" {
		params[paramTag] = in.tag
	}
	return params
}

// matchKey returns the key of a service in a document,
// [group/]interface[:version]:protocol.
func matchKey(i registry.Interface, protocol string) string {
	key := i.Name
	if i.Group != "" {
		key = i.Group + "/" + key
	}
	if i.Version != "" {
		key += ":" + i.Version
	}
	return key + ":" + protocol
}

// The form of our revisions.
const (
	revisionSign = "-"
	revisionHash = 22
)

// parseRevision returns the owner and bridge in a revision; false if a bridge did not
// write it.
func parseRevision(revision string) (metadata.Mark, bool) {
	mark, hash, ok := strings.Cut(revision, revisionSign)
	if !ok || len(hash) != revisionHash {
		return metadata.Mark{}, false
	}
	m, err := metadata.ParseMark(mark)
	return m, err == nil && m.Path == ""
}

// The reasons why a document cannot be used.
var (
	errNoServices = errors.New("names no services")
	errNoPath     = errors.New("has no path")
)

// parseDocument parses a document of Java or dubbo-go. A document without services is an
// error.
func parseDocument(text string) (Document, error) {
	var r Document
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Document{}, fmt.Errorf("metadata %.80q: %w", text, err)
	}
	if len(r.Services) == 0 {
		return Document{}, fmt.Errorf("metadata %.80q %w", text, errNoServices)
	}
	return r, nil
}

// check returns why consumers cannot use a service of a document.
func (s *DocumentService) check() error {
	if err := checkInterface(s.iface()); err != nil {
		return err
	}
	if s.Path == "" {
		return fmt.Errorf("%s %w", s.Name, errNoPath)
	}
	return checkProtocol(s.Protocol)
}

func (s *DocumentService) iface() registry.Interface {
	return registry.Interface{Name: s.Name, Version: s.Version, Group: s.Group}
}

// interfacesOf returns the names of the interfaces of a document, in order. It returns
// none for an invalid document.
func interfacesOf(text string) []string {
	r, err := parseDocument(text)
	if err != nil {
		return nil
	}
	var names []string
	for _, s := range r.Services {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// MetadataService is the service of Dubbo that returns the document of an instance if the
// instance does not store it.
type MetadataService struct {
	Protocol    string // tri or dubbo
	Host        string
	Port        uint16
	Version     string // 2.0.0 since Dubbo 3.3, 1.0.0 before
	Application string
	Revision    string
}

const keyService = "#service/"

// Address returns host and port.
func (m MetadataService) Address() string { return hostPort(m.Host, m.Port) }

// key returns the key of the document as a dependency.
func (m MetadataService) key() string {
	q := url.Values{"application": {m.Application}, "revision": {m.Revision}, "version": {m.Version}}
	return keyService + m.Protocol + "://" + m.Address() + "?" + q.Encode()
}

// ParseMetadataService parses the key of a metadata.Ref; false if the registry stores the
// document.
func ParseMetadataService(key string) (MetadataService, bool) {
	text, ok := strings.CutPrefix(key, keyService)
	if !ok {
		return MetadataService{}, false
	}
	u, err := url.Parse(text)
	if err != nil {
		return MetadataService{}, false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	q := u.Query()
	return MetadataService{
		Protocol: u.Scheme, Host: u.Hostname(), Port: uint16(port),
		Version: q.Get("version"), Application: q.Get("application"), Revision: q.Get("revision"),
	}, err == nil
}

// ParseMetadataRevision returns the revision in the key of a metadata.Ref; false if the
// key has none.
func ParseMetadataRevision(key string) (string, bool) {
	return strings.CutPrefix(key, keyMetadata)
}

// metadataService returns the MetadataService of an instance. It fails if the instance
// does not report one.
func (r *registration) metadataService() (MetadataService, error) {
	text := r.metadata[metaService]
	if text == "" {
		return MetadataService{}, errNoService
	}
	var params struct{ Port, Protocol, Version string }
	if err := json.Unmarshal([]byte(text), &params); err != nil {
		return MetadataService{}, fmt.Errorf("%s %.80q: %w", metaService, text, err)
	}
	port, err := strconv.ParseUint(params.Port, 10, 16)
	if err != nil || port == 0 {
		return MetadataService{}, fmt.Errorf("%s %.80q: %w", metaService, text, errNoService)
	}
	if err := checkProtocol(params.Protocol); err != nil {
		return MetadataService{}, fmt.Errorf("%s: %w", metaService, err)
	}
	return MetadataService{
		Protocol: params.Protocol, Host: r.host, Port: uint16(port), Version: params.Version,
		Application: r.entry.Group.Name, Revision: r.metadata[metaRevision],
	}, nil
}
