package dubbogo

import (
	"context"
	"slices"

	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// routing follows the routes of the mesh, as a proxy would: a VirtualService may send calls with a
// header, or a part of all calls, to a subset. It implements router.PriorityRouter and its
// factory. As a cluster.Interceptor it shows the attachments of the context to the router, which
// dubbo-go does not.
type routing struct{}

// NewPriorityRouter implements router.PriorityRouterFactory.
func (routing) NewPriorityRouter(*common.URL) (router.PriorityRouter, error) { return routing{}, nil }

// URL implements router.PriorityRouter.
func (routing) URL() *common.URL { return nil }

// Priority implements router.PriorityRouter: rules of the application come first.
func (routing) Priority() int64 { return 1000 }

// Notify implements router.PriorityRouter. dubbo-go calls it after each answer. Weights and subsets
// are updated in the existing URL: for another URL dubbo-go would end the provider during calls.
func (routing) Notify(all []base.Invoker) {
	for _, i := range all {
		u := i.GetURL()
		if o := originOf(u); o != nil {
			o.renew(u)
		}
	}
}

// Route implements router.PriorityRouter. It chooses the host by the weights of all providers, and
// then the providers of that host by the host's routes.
func (routing) Route(all []base.Invoker, u *common.URL, call base.Invocation) []base.Invoker {
	chosen, ok := adapter.Choose(all, weightOf)
	if !ok {
		return all
	}
	one := endpointOf(chosen)
	if one == nil {
		return all
	}
	ofContext, _ := call.GetAttributeWithDefaultValue(Name, map[string]any(nil)).(map[string]any)
	subset := one.Subset("/"+u.Service()+"/"+call.MethodName(), adapter.Header(ofContext, call.Attachments()))
	if subset == "" {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(i base.Invoker) bool {
		e := endpointOf(i)
		return e == nil || !e.In(one.Service, subset)
	})
}

func weightOf(i base.Invoker) uint64 {
	if e := endpointOf(i); e != nil {
		return uint64(adapter.Share(e.Weight))
	}
	return 0
}

// endpointOf returns a provider's endpoint as it is known now; nil if another registry reported it.
func endpointOf(i base.Invoker) *client.Endpoint {
	if o := originOf(i.GetURL()); o != nil {
		return o.now.Load()
	}
	return nil
}

// Invoke implements cluster.Interceptor.
func (routing) Invoke(ctx context.Context, next base.Invoker, call base.Invocation) result.Result {
	if attached, ok := ctx.Value(constant.AttachmentKey).(map[string]any); ok {
		call.SetAttribute(Name, attached)
	}
	return next.Invoke(ctx, call)
}
