package dubbo

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// MetadataService is where an instance answers what it provides, where it
// does not store that: Dubbo's MetadataService, as the group of its
// application.
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

// key is the key under which an instance looks for the answer.
func (m MetadataService) key() string {
	q := url.Values{"application": {m.Application}, "revision": {m.Revision}, "version": {m.Version}}
	return keyService + m.Protocol + "://" + m.Address() + "?" + q.Encode()
}

// ParseMetadataService reads the key of a metadata.Ref; false where it asks for
// something that the registry stores.
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

// ParseMetadataRevision returns the revision that the key of a metadata.Ref
// asks for; false where it asks for something else.
func ParseMetadataRevision(key string) (string, bool) {
	return strings.CutPrefix(key, keyMetadata)
}

// service returns where an instance reports what it provides.
func (h *received) service() (MetadataService, error) {
	text := h.metadata[metaService]
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
		Protocol: params.Protocol, Host: h.host, Port: uint16(port), Version: params.Version,
		Application: h.entry.Group.Name, Revision: h.metadata[metaRevision],
	}, nil
}
