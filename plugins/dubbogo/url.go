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

// queryOf returns what a consumer asks for: who provides its interface, and the
// instances of the applications that it names as providers.
func queryOf(u *common.URL) client.Query {
	all := []client.Query{client.ByInterface(u.Service(), u.Version(), u.Group())}
	if by := u.GetParam(constant.ProvidedBy, ""); by != "" {
		for application := range strings.SplitSeq(by, ",") {
			all = append(all, client.Named(application))
		}
	}
	return client.AnyOf(all...)
}

// instanceOf returns what dubbo-go reports a provider. Where it reports no address, or
// another one is to be registered, that is as dubbo-go's own registries have it.
func instanceOf(u *common.URL) (client.Instance, error) {
	if u == nil {
		return client.Instance{}, errNothing
	}
	at := common.NewURLWithOptions(common.WithIp(u.Ip), common.WithPort(u.Port)) // a clone would share, and write, attributes
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
		Application: u.GetParam(constant.ApplicationKey, ""), Interfaces: []client.Interface{{Name: u.Service(), Version: u.Version(), Group: u.Group()}},
		Host: strings.Trim(at.Ip, "[]"), Port: uint16(port), Protocol: u.Protocol, Metadata: params,
		Weight: adapter.Weight(uint32(max(u.GetParamInt32(constant.WeightKey, 0), 0))), //nolint:gosec // not negative
	}, nil
}

// origin is what a provider's URL was made of, as it is known now. The URL and its
// clones carry it as an attribute.
type origin struct {
	client *client.Client
	now    atomic.Pointer[client.Endpoint]
}

// originOf returns that of a provider's URL; nil where another registry reported it,
// or it is no more.
func originOf(u *common.URL) *origin {
	if u == nil {
		return nil
	}
	attribute, _ := u.GetAttribute(Name)
	o, _ := attribute.(*origin)
	return o
}

// urlOf returns an endpoint that provides an interface as dubbo-go represents a provider.
// In the mesh, which does not report it, it speaks the protocol that is asked for.
//
// Of a whole list of providers, dubbo-go leaves one that it knows as it was; of what
// it knows it by, only the time in the URL that it was read from is free to report a
// difference. Weight and subsets are none: renew sees to them.
func urlOf(c *client.Client, e client.Endpoint, of *common.URL) *common.URL {
	o, params := &origin{client: c}, e.Attributes()
	o.now.Store(&e)
	maps.Copy(params, map[string]string{
		constant.InterfaceKey: of.Service(), constant.VersionKey: of.Version(), constant.GroupKey: of.Group(), constant.WeightKey: "", mesh.AttributeSubset: "",
		constant.ApplicationKey: e.Application, constant.SideKey: constant.SideProvider,
	})
	u := common.NewURLWithOptions(
		common.WithProtocol(cmp.Or(e.Protocol, of.Protocol)), common.WithIp(e.Host), common.WithPort(strconv.Itoa(int(e.Port))), common.WithLocation(e.Address()),
		common.WithPath("/"+of.Service()), common.WithMethods(strings.Split(e.Attribute(constant.MethodsKey), ",")), common.WithAttribute(Name, o),
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

// renew has a provider's URL say what its endpoint is like now.
func (o *origin) renew(u *common.URL) {
	e, _ := o.client.Latest(*o.now.Load())
	o.now.Store(&e)
	u.SetParam(constant.WeightKey, strconv.Itoa(int(adapter.Share(e.Weight))))
	u.SetParam(mesh.AttributeSubset, e.Attribute(mesh.AttributeSubset))
}
