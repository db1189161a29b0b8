package dubbo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errNoProvider = errors.New("is not a provider")

// A decodedProvider is a provider that was decoded from an entry.
type decodedProvider struct {
	group       registry.Group
	iface       registry.Interface
	application string
	endpoint    registry.Endpoint
}

// decode implements Codec.Decode for the forms without documents.
func decode(
	entries []registry.Entry, decodeEntry func(registry.Entry) (*decodedProvider, error),
) ([]*registry.Service, []metadata.DecodeError) {
	all := make([]*decodedProvider, 0, len(entries))
	var failed []metadata.DecodeError
	for _, e := range entries {
		p, err := decodeEntry(e)
		if err != nil {
			failed = append(failed, metadata.DecodeError{Entry: e, Err: err})
			continue
		}
		p.group = e.Group
		all = append(all, p)
	}
	return services(all), failed
}

// decodeURL returns the provider of a URL. It fails for a URL that is not a provider, and
// for one that consumers cannot call.
func decodeURL(u parsedURL) (*decodedProvider, error) {
	get := func(key string) string {
		value := ""
		for _, p := range u.params {
			if p.key == key {
				value = p.value
			}
		}
		return value
	}
	if err := checkCategory(u.protocol, cmp.Or(get(paramCategory), get("nacos.category"))); err != nil {
		return nil, err
	}
	decoded := &decodedProvider{iface: registry.Interface{
		Name:    cmp.Or(get(paramInterface), canonicalPath(u.path)),
		Version: get(paramVersion),
		Group:   get(paramGroup),
	}}
	if err := checkInterface(decoded.iface); err != nil {
		return nil, err
	}
	path, err := pathInMark(get(metadata.MarkKey))
	if err != nil {
		return nil, err
	}
	urlPath, err := urlPathOf(u.path, decoded.iface.Name)
	if err != nil {
		return nil, err
	}
	decoded.application = get(paramApplication)
	decoded.endpoint = registry.Endpoint{
		Host: u.host, Port: u.port, Protocol: u.protocol, Path: path,
		Zone: get(paramMeshLocality), Instance: get(paramInstance), URLPath: urlPath,
	}
	w := weightParams{
		mesh: get(paramMeshWeight), dubbo: get(paramWeight), release: get(paramRelease), bridged: path != "",
	}
	decoded.endpoint.Weight, decoded.endpoint.ZeroWeight = w.weight()
	if isHidden(get(paramEnabled), get(paramDisabled)) {
		decoded.endpoint.Health = registry.Disabled
	}
	decoded.endpoint.Attributes = attributes(u.params)
	return decoded, nil
}

// attributes returns the parameters for which the model has no field.
func attributes(params []param) registry.Attributes {
	var out registry.Attributes
	for _, p := range params {
		if p.key == "" || p.key == paramApplication || isReserved(p.key) || isVolatile(p.key) {
			continue
		}
		if out == nil {
			out = make(registry.Attributes)
		}
		out[p.key] = p.value
	}
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

// checkCategory refuses URLs that are not providers, such as consumers and rules.
func checkCategory(protocol, category string) error {
	switch protocol {
	case "consumer", "empty", "override", "route", "condition", "script", "admin":
		return fmt.Errorf("%s:// %w", protocol, errNoProvider)
	}
	if category != "" && category != naming.Providers {
		return fmt.Errorf("category %.40q %w", category, errNoProvider)
	}
	return nil
}

// pathInMark returns the path in a mark, which may be empty.
func pathInMark(s string) (registry.Path, error) {
	if s == "" {
		return "", nil
	}
	m, err := metadata.ParseMark(s)
	if err != nil {
		return "", err
	}
	return m.Path, nil
}

// isHidden reports whether consumers of Dubbo ignore a provider. Every text except true
// means false.
func isHidden(enabled, disabled string) bool {
	return enabled != "" && !strings.EqualFold(enabled, "true") || strings.EqualFold(disabled, "true")
}

// urlPathOf returns the URL path of a provider. It is empty if the path is the
// interface's name, which consumers call by default.
func urlPathOf(path, iface string) (string, error) {
	path = canonicalPath(path)
	if path == "" || path == iface {
		return "", nil
	}
	bad := func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) || strings.ContainsRune(`?#%;"\`, r) }
	if !utf8.ValidString(path) || strings.ContainsFunc(path, bad) {
		return "", fmt.Errorf("path %s cannot be part of a URL", naming.Quote(path))
	}
	return path, nil
}

// weightParams are the parameters of a provider that determine its weight.
type weightParams struct {
	mesh, dubbo string // the weight of the mesh and that of Dubbo
	release     string // of the framework
	bridged     bool   // whether the provider came from another registry
}

// dubboGoRelease begins the releases of dubbo-go, which writes the default weight as 0.
const dubboGoRelease = "dubbo-golang-"

// weight returns the weight of a provider, and whether it is 0 on purpose. The weight of
// the mesh takes precedence over that of Dubbo. An invalid number is ignored.
func (w weightParams) weight() (weight uint32, zero bool) {
	text := w.mesh
	if text == "" {
		text = w.dubbo
	}
	n, err := strconv.ParseUint(text, 10, 32)
	switch {
	case text == "" && w.bridged:
		return 0, false
	case text == "", w.mesh == "" && err == nil && n == 0 && strings.HasPrefix(w.release, dubboGoRelease):
		return defaultWeight, false
	case err != nil:
		return 0, false
	default:
		return uint32(n), n == 0 && w.mesh == ""
	}
}

// services returns a service for each group and interface of the providers. A service
// has the attributes that are equal for all its endpoints.
func services(all []*decodedProvider) []*registry.Service {
	slices.SortStableFunc(all, func(a, b *decodedProvider) int {
		return cmp.Or(a.group.Compare(b.group), cmp.Compare(a.iface.Name, b.iface.Name),
			cmp.Compare(a.iface.Version, b.iface.Version), cmp.Compare(a.iface.Group, b.iface.Group),
			a.endpoint.Compare(b.endpoint))
	})
	var out []*registry.Service
	for len(all) > 0 {
		first := all[0]
		n := 1
		for n < len(all) && all[n].group == first.group && all[n].iface == first.iface {
			n++
		}
		out = append(out, serviceOf(all[:n]))
		all = all[n:]
	}
	return out
}

// serviceOf returns the service of providers. Its strings are copies, because substrings
// of the entries would keep the whole entries in memory.
func serviceOf(all []*decodedProvider) *registry.Service {
	first := all[0]
	s := &registry.Service{
		Name:        NameOf(first.group, first.iface),
		Application: strings.Clone(first.application),
		Interfaces: []registry.Interface{{
			Name: strings.Clone(first.iface.Name), Version: strings.Clone(first.iface.Version),
			Group: strings.Clone(first.iface.Group),
		}},
		Attributes: cloneAttributes(first.endpoint.Attributes),
		Endpoints:  make([]registry.Endpoint, 0, len(all)),
	}
	for _, f := range all[1:] {
		if f.application != s.Application {
			s.Application = ""
		}
		maps.DeleteFunc(s.Attributes, func(k, v string) bool { return f.endpoint.Attributes[k] != v })
	}
	if len(s.Attributes) == 0 {
		s.Attributes = nil
	}
	for _, f := range all {
		e := f.endpoint
		maps.DeleteFunc(e.Attributes, func(k, _ string) bool { return s.Attributes[k] != "" })
		if s.Application == "" && f.application != "" {
			if e.Attributes == nil {
				e.Attributes = make(registry.Attributes, 1)
			}
			e.Attributes[paramApplication] = f.application
		}
		n := len(s.Endpoints)
		if n > 0 && s.Endpoints[n-1].Compare(e) == 0 {
			continue // one address registered twice
		}
		e.Attributes = cloneAttributes(e.Attributes)
		e.Host, e.Instance, e.URLPath = strings.Clone(e.Host), strings.Clone(e.Instance), strings.Clone(e.URLPath)
		var last registry.Endpoint
		if n > 0 {
			last = s.Endpoints[n-1]
		}
		e.Protocol, e.Zone = shareOrClone(last.Protocol, e.Protocol), shareOrClone(last.Zone, e.Zone)
		e.Path = registry.Path(shareOrClone(string(last.Path), string(e.Path)))
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// cloneAttributes returns a copy of attributes and of their strings; nil for none.
func cloneAttributes(a registry.Attributes) registry.Attributes {
	if len(a) == 0 {
		return nil
	}
	out := make(registry.Attributes, len(a))
	for k, v := range a {
		out[strings.Clone(k)] = strings.Clone(v)
	}
	return out
}

// shareOrClone returns the other string if it equals s, and otherwise a copy of s.
func shareOrClone(other, s string) string {
	if other == s {
		return other
	}
	return strings.Clone(s)
}

// Place implements metadata.Codec. A root below this one is another place.
func (z *ZooKeeper) Place() registry.Place { return registry.NewPlace(z.group(""), isKey) }

// Place implements metadata.Codec. A root below this one is another place.
func (z *ZooKeeperApp) Place() registry.Place {
	return registry.NewPlace(z.group(""), func(rest string) bool {
		_, key, ok := strings.Cut(rest, "/")
		return ok && (key == "" || isKey(key))
	})
}

// Place implements metadata.Codec.
func (n *Nacos) Place() registry.Place { return registry.NewPlace(n.group(""), nil) }

// Place implements metadata.Codec.
func (n *NacosApp) Place() registry.Place { return registry.NewPlace(n.group(""), nil) }

// isKey reports whether a name begins with a service key.
func isKey(name string) bool { return strings.HasPrefix(name, naming.Providers+":") }

// Scope implements metadata.Scoped: the parent of an interface may have any version
// and group of it.
func (*ZooKeeper) Scope(g registry.Group) string {
	g.Name = naming.Providers + ":" + g.Name + ":*"
	return g.String()
}

// Scope implements metadata.Scoped: an application may provide any interface.
func (*ZooKeeperApp) Scope(g registry.Group) string { return g.String() + "/*" }

// Scope implements metadata.Scoped: a legacy name may stand for several keys of its
// interface. These are unknown as well, because Origin attributes an entry in a target
// to them.
func (*Nacos) Scope(g registry.Group) string {
	if parts := strings.Split(g.Name, ":"); len(parts) > 1 && len(parts) < 4 {
		g.Name = naming.Providers + ":" + parts[1] + ":*"
	}
	return g.String()
}

// Scope implements metadata.Scoped.
func (*NacosApp) Scope(g registry.Group) string { return g.String() + "/*" }

// NameOf returns the name of a service: format, namespace, group and service key.
func NameOf(g registry.Group, i registry.Interface) registry.Name {
	key := metadata.KeyOf(i).String()
	switch {
	case g.Kind == KindApplication:
		key = g.Name + "/" + key // several applications may provide one interface
	case g.Name != key && strings.HasPrefix(g.Name, naming.Providers+":"):
		key += "/" + g.Name // a legacy name in Nacos; the service may exist under both names
	}
	g.Name = key
	return registry.Name(g.String())
}
