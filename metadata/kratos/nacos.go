package kratos

import (
	"cmp"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// NewNacos returns the codec of the format as the registry of Kratos stores it in Nacos:
//
//	service <name>.<scheme>, one for each of grpc, grpcs, http and https; group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":9000,"weight":100,…,"metadata":{
//	  "kind":"grpc"[,"weight":"300"][,"version":"v1"],…,"xdsb":"<mark>"}}
//
// Consumers that watch use the weight in the metadata, and consumers that query once use
// the weight of the instance. Both are written.
func NewNacos(o instance.Options) (*instance.Nacos, error) {
	return instance.NewNacos(instance.NacosForm{
		Form: instance.Form{
			Kind: Kind, Speaks: speaks, Own: ownKind, Extract: extractKind, Reserved: []string{keyWeight, keyKind},
		},
		Scale: convert.Kratos(),
		Name:  func(service, protocol string) string { return service + "." + convert.Scheme(protocol) },
		Parse: func(service string) (string, bool) {
			name, scheme := cutScheme(service)
			return name, scheme != "" && name != ""
		},
	}, o)
}

func ownKind(i instance.Instance) map[string]string {
	m := ownWeight(i)
	m[keyKind] = convert.Scheme(i.Ports[0].Protocol)
	return m
}

func extractKind(i *instance.Instance) error {
	_, scheme := cutScheme(i.Service)
	i.Ports[0].Protocol = cmp.Or(i.Metadata[keyKind], scheme)
	delete(i.Metadata, keyKind)
	return extractWeight(i)
}

// Services returns the names of an application's services: one for each scheme, or only
// the given name if it has a scheme.
func Services(application string) []string {
	if _, scheme := cutScheme(application); scheme != "" {
		return []string{application}
	}
	var all []string
	for _, scheme := range Schemes() {
		all = append(all, application+"."+scheme)
	}
	return all
}

// Schemes returns the schemes of Kratos servers. The last two are with TLS.
func Schemes() []string { return []string{"grpc", "http", "grpcs", "https"} }

// cutScheme splits the scheme off a service's name.
func cutScheme(service string) (name, scheme string) {
	at := strings.LastIndexByte(service, '.')
	if at < 0 {
		return service, ""
	}
	if scheme = service[at+1:]; slices.Contains(Schemes(), scheme) {
		return service[:at], scheme
	}
	return service, ""
}
