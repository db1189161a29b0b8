package dubbogo

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

func side(u *common.URL) string { return u.GetParam(constant.SideKey, "") }

// queryOf returns the query of a consumer: the providers of its interface, and the instances of
// the applications that it names as providers.
func queryOf(u *common.URL) client.Query {
	all := []client.Query{client.ByInterface(u.Service(), u.Version(), u.Group())}
	if by := u.GetParam(constant.ProvidedBy, ""); by != "" {
		for application := range strings.SplitSeq(by, ",") {
			all = append(all, client.Named(application))
		}
	}
	return client.AnyOf(all...)
}

// instanceOf returns the instance of a provider. If dubbo-go reports no address, or is configured
// to register another one, the address is the one that dubbo-go's own registries use.
func instanceOf(u *common.URL) (client.Instance, error) {
	if u == nil {
		return client.Instance{}, errNoURL
	}
	at := common.NewURLWithOptions(common.WithIp(u.Ip), common.WithPort(u.Port)) // a clone would share and change attributes
	common.HandleRegisterIPAndPort(at)
	port, err := strconv.ParseUint(at.Port, 10, 16)
	if err != nil {
		return client.Instance{}, fmt.Errorf("provider %s: port: %w", u.Key(), err)
	}
	params := map[string]string{constant.MethodsKey: strings.Join(u.Methods, ",")}
	u.RangeParams(func(name, value string) bool {
		params[name] = value
		return true
	})
	return client.Instance{
		Application: u.GetParam(constant.ApplicationKey, ""),
		Interfaces:  []client.Interface{{Name: u.Service(), Version: u.Version(), Group: u.Group()}},
		Host:        strings.Trim(at.Ip, "[]"), Port: uint16(port), Protocol: u.Protocol, Metadata: params,
		Weight: adapter.Weight(uint32(max(u.GetParamInt32(constant.WeightKey, 0), 0))), //nolint:gosec // not negative
	}, nil
}

// origin is the latest known endpoint of a provider's URL. The URL and its clones carry the origin
// as an attribute.
type origin struct {
	client *client.Client
	now    atomic.Pointer[client.Endpoint]
}

// originOf returns the origin of a provider's URL; nil if another registry reported the provider.
func originOf(u *common.URL) *origin {
	if u == nil {
		return nil
	}
	attribute, _ := u.GetAttribute(Name)
	o, _ := attribute.(*origin)
	return o
}

// urlOf returns the provider URL of an endpoint that provides an interface. The mesh does not
// report the protocol, so that there it is the consumer's.
//
// When dubbo-go receives a list of providers, it keeps the URL of each provider that it knows. It
// recognizes a provider by a key, of which only the timestamp of the primitive URL is free to
// report a change. Weight and subsets are not part of the key, because renew updates them.
func urlOf(c *client.Client, e client.Endpoint, of *common.URL) *common.URL {
	o, params := &origin{client: c}, e.Attributes()
	o.now.Store(&e)
	maps.Copy(params, map[string]string{
		constant.InterfaceKey: of.Service(), constant.VersionKey: of.Version(), constant.GroupKey: of.Group(),
		constant.WeightKey: "", mesh.AttributeSubset: "",
		constant.ApplicationKey: e.Application, constant.SideKey: constant.SideProvider,
	})
	u := common.NewURLWithOptions(
		common.WithProtocol(cmp.Or(e.Protocol, of.Protocol)), common.WithIp(e.Host),
		common.WithPort(strconv.Itoa(int(e.Port))), common.WithLocation(e.Address()),
		common.WithPath("/"+of.Service()), common.WithMethods(strings.Split(e.Attribute(constant.MethodsKey), ",")),
		common.WithAttribute(Name, o),
	)
	for name, value := range params {
		if value != "" {
			u.SetParam(name, value)
		}
	}
	u.PrimitiveURL = fmt.Sprintf("x://x?%s=%x", constant.TimestampKey, sha256.Sum256([]byte(u.String())))
	o.renew(u)
	return u
}

// renew updates a provider's URL with the latest weight and subsets of its endpoint.
func (o *origin) renew(u *common.URL) {
	e, _ := o.client.Latest(*o.now.Load())
	o.now.Store(&e)
	u.SetParam(constant.WeightKey, strconv.Itoa(int(adapter.Share(e.Weight))))
	u.SetParam(mesh.AttributeSubset, e.Attribute(mesh.AttributeSubset))
}
