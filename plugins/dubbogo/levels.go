package dubbogo

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"

	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// levels is dubbo-go's protocol of registries, to which a registry of this package is
// the same on both levels. By application dubbo-go asks which application provides an
// interface, where its instances are, and what each provides: one answer has it all.
type levels struct {
	base.Protocol
	registry.RegistryFactory
	ours map[string]bool // protocols of this package's registries
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

// join has the URL of a registry on the level of applications name that of interfaces.
func (l levels) join(u *common.URL) {
	if u.Protocol == constant.ServiceRegistryProtocol && l.ours[u.GetParam(constant.RegistryKey, "")] {
		u.Protocol = constant.RegistryProtocol
	}
}
