package dubbogo

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/url"
	"strconv"
	"strings"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// asked is what a consumer asks for and the protocol that it speaks.
type asked struct {
	registry.Interface
	protocol string
}

func queried(u *common.URL) asked {
	return asked{registry.Interface{Name: u.Service(), Version: u.Version(), Group: u.Group()}, u.Protocol}
}

func (a asked) query() client.Query { return client.ByKey(client.KeyOf(a.Interface)) }

func side(u *common.URL) string { return u.GetParam(constant.SideKey, "") }

// instanceOf returns what dubbo-go tells of a provider. Where it tells no address,
// or another one is to be registered, that is as dubbo-go's own registries have it.
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
	told := map[string]string{constant.MethodsKey: strings.Join(u.Methods, ",")}
	u.RangeParams(func(name, value string) bool {
		told[name] = value
		return true
	})
	return client.Instance{
		Application: u.GetParam(constant.ApplicationKey, ""), Interfaces: []registry.Interface{queried(u).Interface},
		Host: strings.Trim(at.Ip, "[]"), Port: uint16(port), Protocol: u.Protocol, Metadata: told,
		Weight: uint32(max(u.GetParamInt32(constant.WeightKey, 0), 0)), //nolint:gosec // not negative
	}, nil
}

// urlOf returns an endpoint of an answer as dubbo-go takes a provider. In the mesh,
// which does not tell it, it speaks the protocol that is asked for.
//
// A whole list of providers leaves one as it was that dubbo-go knows already; of
// what it knows it by, only the time in the URL that it was read from is free to
// tell of a difference. Weight and subsets are none: the router sees to them.
func urlOf(s client.Snapshot, e client.Endpoint, of asked) *common.URL {
	params := make(url.Values)
	for name, value := range e.AllAttributes() {
		params.Set(name, value)
	}
	for name, value := range map[string]string{
		constant.InterfaceKey: of.Name, constant.VersionKey: of.Version, constant.GroupKey: of.Group, constant.WeightKey: "", mesh.AttributeSubset: "",
		constant.ApplicationKey: e.Service.Application, constant.SideKey: constant.SideProvider,
	} {
		if params.Del(name); value != "" {
			params.Set(name, value)
		}
	}
	u := common.NewURLWithOptions(
		common.WithProtocol(cmp.Or(e.Scheme(), of.protocol)), common.WithIp(e.Host), common.WithPort(strconv.Itoa(int(e.Port))), common.WithLocation(e.Address()),
		common.WithPath("/"+of.Name), common.WithMethods(strings.Split(e.Attribute(constant.MethodsKey), ",")), common.WithParams(params),
		common.WithAttribute(Name, s.Place(e)),
	)
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(u.String()))
	u.PrimitiveURL = "x://x?" + constant.TimestampKey + "=" + strconv.FormatUint(digest.Sum64(), 10)
	renew(u)
	return u
}

// renew has a provider's URL tell of the weight and the subsets that it has now.
func renew(u *common.URL) {
	p := placeOf(u)
	if p == nil {
		return
	}
	e, weight := p.Endpoint(), constant.DefaultWeight // where none is told
	if e.Weight > 0 || e.ZeroWeight {
		weight = int(e.Weight)
	}
	u.SetParam(constant.WeightKey, strconv.Itoa(weight))
	if subsets := e.Attribute(mesh.AttributeSubset); subsets != u.GetParam(mesh.AttributeSubset, "") {
		u.SetParam(mesh.AttributeSubset, subsets)
	}
}
