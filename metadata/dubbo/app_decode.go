package dubbo

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The reasons why an instance cannot be decoded.
var (
	errNoRevision = errors.New("has no " + metaRevision)
	errOldLevel   = errors.New("has " + metaOldRevision + ", as Dubbo 2.7.5 to 2.7.8 and dubbo-go 1.5 " +
		"register applications, which Dubbo 3 does not read; let it register interfaces")
	errNoDocument = errors.New("its metadata is not in the registry")
	errNoService  = errors.New("does not store its metadata (" + metaStorage + "=local) " +
		"and has no address to request it from; " + remedy)
)

// remedy is what an operator can do about instances whose metadata cannot be requested.
const remedy = "let it register with dubbo.application.metadata-type=remote, " +
	"or at both levels (Java: dubbo.application.register-mode=all, dubbo-go: registry-type: all) and read it as " + Kind

// documentKey returns the key of the document that an instance refers to. It fails if the
// instance refers to none.
func (r *registration) documentKey() (string, error) {
	revision := r.metadata[metaRevision]
	switch {
	case revision == "" && r.metadata[metaOldRevision] != "":
		return "", errOldLevel
	case revision == "":
		return "", errNoRevision
	}
	if r.metadata[metaStorage] == storageRemote {
		return keyMetadata + revision, nil
	}
	s, err := r.metadataService()
	if err != nil {
		return "", err
	}
	return s.key(), nil
}

// dependencies implements Codec.Dependencies for a form.
func dependencies(entries []registry.Entry, parse func(registry.Entry) (registration, error)) []metadata.Ref {
	seen := make(map[metadata.Ref]bool)
	var refs []metadata.Ref
	for _, e := range entries {
		r, err := parse(e)
		if err != nil || !r.provides() {
			continue
		}
		key, err := r.documentKey()
		if ref := (metadata.Ref{Group: e.Group, Key: key}); err == nil && !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
	}
	return refs
}

// decodeApps implements Codec.Decode for a form. Each interface of an application is a
// service. Its endpoints are the instances whose revision provides the interface.
func decodeApps(
	entries, extras []registry.Entry, parse func(registry.Entry) (registration, error),
) ([]*registry.Service, []metadata.DecodeError) {
	documents := make(map[metadata.Ref]Document, len(extras))
	broken := make(map[metadata.Ref]error)
	for _, e := range extras {
		ref := metadata.Ref{Group: e.Group, Key: e.Key}
		r, err := parseDocument(e.Value)
		if err != nil {
			broken[ref] = err
			continue
		}
		documents[ref] = r
	}
	var all []*decodedProvider
	var failed []metadata.DecodeError
	applications := make(map[registry.Group]bool)
	for _, e := range entries {
		if registry.IsPart(e.Key) {
			continue
		}
		some, err := decodeInstance(e, parse, func(ref metadata.Ref) (Document, error) {
			if r, ok := documents[ref]; ok {
				return r, nil
			}
			if err := broken[ref]; err != nil {
				return Document{}, err
			}
			if m, ok := ParseMetadataService(ref.Key); ok {
				return Document{}, fmt.Errorf("%w and %s://%s did not return it; %s",
					errNoDocument, m.Protocol, m.Address(), remedy)
			}
			return Document{}, fmt.Errorf("%w: %s", errNoDocument, strings.TrimPrefix(ref.Key, registry.PartPrefix))
		})
		all = append(all, some...)
		applications[e.Group] = applications[e.Group] || !errors.Is(err, errForeign)
		if err != nil {
			failed = append(failed, metadata.DecodeError{Entry: e, Err: err})
		}
	}
	// A group with only instances of other formats is not an application.
	failed = slices.DeleteFunc(failed, func(f metadata.DecodeError) bool { return !applications[f.Entry.Group] })
	return services(all), failed
}

// decodeInstance decodes one instance. An error together with providers names interfaces
// that could not be decoded.
func decodeInstance(
	e registry.Entry, parse func(registry.Entry) (registration, error), lookup func(metadata.Ref) (Document, error),
) ([]*decodedProvider, error) {
	r, err := parse(e)
	if err != nil || !r.provides() {
		return nil, err
	}
	if err := checkAddress(r.host, r.port); err != nil {
		return nil, err
	}
	key, err := r.documentKey()
	if err != nil {
		return nil, err
	}
	document, err := lookup(metadata.Ref{Group: e.Group, Key: key})
	if err != nil {
		return nil, err
	}
	ports, err := r.ports()
	if err != nil {
		return nil, err
	}
	var all []*decodedProvider
	var omissions []error
	for _, key := range slices.Sorted(maps.Keys(document.Services)) {
		some, err := r.providers(document.Services[key], ports)
		all = append(all, some...)
		omissions = append(omissions, err)
	}
	return all, errors.Join(omissions...)
}

// providers returns the endpoints of one service of a document.
func (r *registration) providers(s DocumentService, ports map[string][]uint16) ([]*decodedProvider, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	at := ports[s.Protocol]
	if ports == nil {
		at = []uint16{r.port}
	}
	if len(at) == 0 {
		return nil, fmt.Errorf("%s: %s has no port for %s", s.Name, metaEndpoints, s.Protocol)
	}
	all := make([]*decodedProvider, 0, len(at))
	for _, port := range at {
		p, err := decodeURL(parsedURL{
			protocol: s.Protocol, host: r.host, port: port, path: s.Path, params: paramsIn(r.params(s)),
		})
		if err != nil {
			return nil, err
		}
		p.group = r.entry.Group
		if len(ports) > 1 && p.endpoint.Instance == "" {
			p.endpoint.Instance = hostPort(r.host, r.port)
		}
		if r.health != registry.HealthUnknown && p.endpoint.Health != registry.Disabled {
			p.endpoint.Health = r.health
		}
		all = append(all, p)
	}
	return all, nil
}

// params returns the parameters of a service at an instance. Like in consumers, those of
// the document override those of the instance.
func (r *registration) params(s DocumentService) map[string]string {
	params := make(map[string]string, len(s.Params)+len(r.metadata))
	for k, v := range r.metadata {
		if !isInternal(k) {
			params[k] = v
		}
	}
	maps.Copy(params, s.Params)
	params[paramInterface], params[paramVersion], params[paramGroup] = s.Name, s.Version, s.Group
	params[paramApplication] = r.entry.Group.Name
	delete(params, paramCategory)
	return params
}

// isInternal reports whether only registries of Dubbo use a key of metadata.
func isInternal(key string) bool {
	switch key {
	case "meta-v", "id", "registry.id", paramProtocol, paramPath:
		return true
	}
	return strings.HasPrefix(key, "dubbo.") && key != paramTag
}

// A registration is an instance that was decoded from an entry.
type registration struct {
	entry    registry.Entry
	host     string
	port     uint16
	health   registry.Health
	metadata map[string]string
}

// provides reports whether an instance is that of a provider. Consumers also register, with
// a revision that has no document.
func (r *registration) provides() bool { return r.metadata[metaRevision] != noRevision }

// ports returns the ports of an instance by protocol. It is nil if the instance lists
// none and uses its own port for all protocols.
func (r *registration) ports() (map[string][]uint16, error) {
	text := r.metadata[metaEndpoints]
	if text == "" {
		return nil, nil //nolint:nilnil // it lists none
	}
	var list []port
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%s %.80q: %w", metaEndpoints, text, err)
	}
	out := make(map[string][]uint16, len(list))
	for _, p := range list {
		if p.Port <= 0 || p.Port > 65535 {
			return nil, fmt.Errorf("%s: port %d is not within 1 to 65535", metaEndpoints, p.Port)
		}
		out[p.Protocol] = append(out[p.Protocol], uint16(p.Port))
	}
	return out, nil
}
