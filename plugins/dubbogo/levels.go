package dubbogo

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"

	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// levels is dubbo-go's protocol of registries. It makes no difference between the two levels for a
// registry of this package. At the level of applications, dubbo-go asks which application
// provides an interface, where its instances are, and what each provides. One answer of this
// package has all of that.
type levels struct {
	base.Protocol
	registry.RegistryFactory
	ours map[string]bool // protocols of registries of this package
	pool *adapter.Pool
}

// Refer implements base.Protocol.
func (l levels) Refer(u *common.URL) base.Invoker {
	l.join(u)
	return l.Protocol.Refer(u)
}

// Export implements base.Protocol.
func (l levels) Export(i base.Invoker) base.Exporter {
	l.join(i.GetURL())
	return l.Protocol.Export(i)
}

// join rewrites a registry URL of the application level to the interface level.
func (l levels) join(u *common.URL) {
	if u.Protocol == constant.ServiceRegistryProtocol && l.ours[u.GetParam(constant.RegistryKey, "")] {
		u.Protocol = constant.RegistryProtocol
	}
}
