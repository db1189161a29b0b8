package dubbogo

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"

	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// routing honours the routes of the mesh: a VirtualService that sends a header or a
// part of the calls to a subset is followed as a proxy would. It implements
// router.PriorityRouter and its factory, and as a cluster.Interceptor it shows the
// router attachments of the context, which dubbo-go does not.
type routing struct{}

// NewPriorityRouter implements router.PriorityRouterFactory.
func (routing) NewPriorityRouter(*common.URL) (router.PriorityRouter, error) { return routing{}, nil }

// URL implements router.PriorityRouter.
func (routing) URL() *common.URL { return nil }

// Priority implements router.PriorityRouter: rules of the application come first.
func (routing) Priority() int64 { return 1000 }

// Notify implements router.PriorityRouter. It follows each answer. What changes most
// is told in place: for another URL dubbo-go would end a provider that calls choose.
func (routing) Notify(all []base.Invoker) {
	for _, i := range all {
		renew(i.GetURL())
	}
}

// Route implements router.PriorityRouter. The host that gets the call is that of one
// provider, by weight; its own routes say which of its providers then.
func (routing) Route(all []base.Invoker, u *common.URL, call base.Invocation) []base.Invoker {
	one, ok := byWeight(all)
	if !ok {
		return all
	}
	host := one.endpoint.Service
	subset := one.client.Routes(host).Subset("/"+u.Service()+"/"+call.MethodName(), headersOf(call), rand.Uint64N)
	if subset == "" {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(i base.Invoker) bool {
		at := i.GetURL()
		o, ok := originOf(at)
		return !ok || o.endpoint.Service.Name != host.Name || !slices.Contains(strings.Split(at.GetParam(mesh.AttributeSubset, ""), ","), subset)
	})
}

// byWeight returns the origin of one provider; none where none is from this package.
func byWeight(all []base.Invoker) (one origin, ok bool) {
	var total int64
	for _, i := range all {
		u := i.GetURL()
		if o, of := originOf(u); of {
			weight := max(u.GetParamInt(constant.WeightKey, constant.DefaultWeight), 1)
			if total += weight; rand.Int64N(total) < weight { //nolint:gosec // spreads load, keeps no secret
				one, ok = o, true
			}
		}
	}
	return one, ok
}

// headersOf returns the attachments of a call as a proxy sees them.
func headersOf(call base.Invocation) func(name string) (string, bool) {
	ofContext, _ := call.GetAttributeWithDefaultValue(Name, map[string]any(nil)).(map[string]any)
	return func(name string) (string, bool) {
		for _, headers := range []map[string]any{ofContext, call.Attachments()} {
			for key, value := range headers {
				if !strings.EqualFold(key, name) {
					continue
				}
				if several, ok := value.([]string); ok {
					value = strings.Join(several, ",")
				}
				text, ok := value.(string)
				return text, ok
			}
		}
		return "", false
	}
}

// Invoke implements cluster.Interceptor.
func (routing) Invoke(ctx context.Context, next base.Invoker, call base.Invocation) result.Result {
	if attached, ok := ctx.Value(constant.AttachmentKey).(map[string]any); ok {
		call.SetAttribute(Name, attached)
	}
	return next.Invoke(ctx, call)
}
