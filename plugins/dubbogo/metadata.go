package dubbogo

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/metadata"
	"dubbo.apache.org/dubbo-go/v3/metadata/info"
	"dubbo.apache.org/dubbo-go/v3/metadata/mapping"
	dubbos "dubbo.apache.org/dubbo-go/v3/metadata/mapping/metadata"
	"dubbo.apache.org/dubbo-go/v3/metadata/report"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"
	gxset "github.com/dubbogo/gost/container/set"
	"github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// names is dubbo-go's mapping from interfaces to the applications that provide them.
// Once a registry of this package is used it has one more for each interface: the
// name by which that finds the interface, under which no other registry has anything.
type names struct {
	mapping.ServiceNameMapping
	used *atomic.Bool
}

// Get implements mapping.ServiceNameMapping. It asks the metadata reports of all
// registries: dubbo-go asks one, which is chance where there are several.
func (m names) Get(u *common.URL, l mapping.MappingListener) (*gxset.HashSet, error) {
	if !m.used.Load() {
		return m.ServiceNameMapping.Get(u, l) //nolint:wrapcheck // dubbo-go's own
	}
	all := gxset.NewSet(keyPrefix + keyIn(u).String())
	for _, r := range metadata.GetMetadataReports() {
		others, err := r.GetServiceAppMapping(u.Service(), dubbos.DefaultGroup, l)
		if err != nil {
			logger.Warnf("%s: which applications provide it: %v", u.Service(), err)
			continue
		}
		all.Add(others.Values()...)
	}
	return all, nil
}

// keyPrefix begins the names of interfaces.
const keyPrefix = Name + "."

// queryOf returns what is asked for by a name: a service key, with keyPrefix or
// without, or an application.
func queryOf(name string) client.Query {
	q, err := client.ParseQuery(strings.TrimPrefix(name, keyPrefix))
	if err != nil {
		return client.Named(name)
	}
	return q
}

// reporting is a metadata report that keeps nothing: instances tell by themselves
// what they provide. It implements report.MetadataReport and its factory.
type reporting struct{}

// CreateMetadataReport implements report.MetadataReportFactory.
func (reporting) CreateMetadataReport(*common.URL) report.MetadataReport { return reporting{} }

// GetAppMetadata implements report.MetadataReport.
func (reporting) GetAppMetadata(application, _ string) (*info.MetadataInfo, error) {
	return nil, errors.New(application + " tells of what it provides in another registry's metadata report")
}

// PublishAppMetadata implements report.MetadataReport.
func (reporting) PublishAppMetadata(string, string, *info.MetadataInfo) error { return nil }

// RegisterServiceAppMapping implements report.MetadataReport.
func (reporting) RegisterServiceAppMapping(string, string, string) error { return nil }

// GetServiceAppMapping implements report.MetadataReport.
func (reporting) GetServiceAppMapping(string, string, mapping.MappingListener) (*gxset.HashSet, error) {
	return gxset.NewSet(), nil
}

// RemoveServiceAppMappingListener implements report.MetadataReport.
func (reporting) RemoveServiceAppMappingListener(string, string) error { return nil }

// described is the protocol of the metadata service by which instances that are
// found tell what they provide. It is within the process: which report dubbo-go
// would ask is chance where there are several.
const described = Name + "-metadata"

// describe returns the metadata of an instance that provides a service key. Its
// revision tells all of it, as dubbo-go keeps what it learnt of one for ever.
func describe(key, protocol string) map[string]string {
	return map[string]string{
		constant.MetadataServiceURLParamsPropertyName: `{"protocol":"` + described + `","port":"1"}`,
		constant.ExportedServicesRevisionPropertyName: protocol + "/" + key,
	}
}

// describing is that service. It implements base.Protocol.
type describing struct{}

// Export implements base.Protocol.
func (describing) Export(base.Invoker) base.Exporter { return nil }

// Refer implements base.Protocol.
func (describing) Refer(u *common.URL) base.Invoker { return description{base.NewBaseInvoker(u)} }

// Destroy implements base.Protocol.
func (describing) Destroy() {}

type description struct{ *base.BaseInvoker }

// Invoke implements base.Invoker: it is asked for a revision. Where no protocol is
// told, the interface is provided by the one that is asked for.
func (description) Invoke(_ context.Context, call base.Invocation) result.Result {
	revision, _ := call.Arguments()[0].(string)
	protocol, text, _ := strings.Cut(revision, "/")
	key, err := naming.ParseServiceKey(text)
	protocols := []string{protocol}
	if protocol == "" {
		protocols = []string{constant.TriProtocol, constant.Dubbo}
	}
	services := make(map[string]*info.ServiceInfo)
	for _, p := range protocols {
		s := info.NewServiceInfo(key.Interface, key.Group, key.Version, p, key.Interface, nil)
		services[s.GetMatchKey()] = s
	}
	if out, ok := call.Reply().(*any); ok {
		*out = info.NewMetadataInfoWithParams("", revision, services)
	}
	return &result.RPCResult{Err: err}
}
