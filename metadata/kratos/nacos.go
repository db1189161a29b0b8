package kratos

import (
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// Nacos is the format as the registry of Kratos stores it in Nacos:
//
//	service <name>.<scheme>, one for each of grpc, grpcs, http and https; group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":9000,"weight":100,…,"metadata":{"kind":"grpc"[,"weight":"300"][,"version":"v1"],…,"xdsb":"<mark>"}}
//
// Consumers that watch read the weight of the metadata, those that ask once that of the
// instance. Both are written.
type Nacos struct {
	common
	instance.SinglePort
}

// NewNacos returns the codec of the format in Nacos.
func NewNacos(o instance.Options) (*instance.Nacos, error) {
	return instance.NewNacos(Nacos{}, o) //nolint:wrapcheck // names the format
}

// Own implements instance.Form.
func (Nacos) Own(i instance.Instance) map[string]string {
	m := ownWeight(i)
	m[keyKind] = convert.Scheme(i.Ports[0].Protocol)
	return m
}

// Reserved implements instance.Form.
func (Nacos) Reserved(key string) bool { return key == keyWeight || key == keyKind }

// IPv6 implements instance.RecordForm.
func (Nacos) IPv6() bool { return true }

// Extract implements instance.Form.
func (Nacos) Extract(i *instance.Instance) error {
	_, scheme := cutScheme(i.Service)
	if kind := i.Metadata[keyKind]; kind != "" {
		scheme = kind
	}
	i.Ports[0].Protocol = scheme
	delete(i.Metadata, keyKind)
	extractWeight(i)
	return nil
}

// Scale implements instance.RecordForm.
func (Nacos) Scale() convert.Scale { return convert.Kratos() }

// Name implements instance.RecordForm.
func (Nacos) Name(service, protocol string) string { return service + "." + convert.Scheme(protocol) }

// Services returns the names of an application's services: one for each scheme, unless
// the name has a scheme.
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

// Schemes returns the schemes of Kratos' servers, the last two with TLS.
func Schemes() []string { return []string{"grpc", "http", "grpcs", "https"} }

// Parse implements instance.RecordForm.
func (Nacos) Parse(service string) (string, bool) {
	name, scheme := cutScheme(service)
	return name, scheme != "" && name != ""
}

// cutScheme splits the scheme from a service's name.
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
