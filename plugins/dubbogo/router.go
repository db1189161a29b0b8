package dubbogo

import (
	"context"
	"strings"

	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/xds-bridge/xds-bridge/plugins/client"
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

// Route implements router.PriorityRouter.
func (routing) Route(all []base.Invoker, u *common.URL, call base.Invocation) []base.Invoker {
	place := func(i base.Invoker) *client.Place { return placeOf(i.GetURL()) }
	return client.Routed(all, place, "/"+u.Service()+"/"+call.MethodName(), func(name string) (string, bool) {
		attached, _ := call.GetAttributeWithDefaultValue(Name, map[string]any(nil)).(map[string]any)
		for _, headers := range []map[string]any{call.Attachments(), attached} {
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
	})
}

// Invoke implements cluster.Interceptor.
func (routing) Invoke(ctx context.Context, next base.Invoker, call base.Invocation) result.Result {
	if attached, ok := ctx.Value(constant.AttachmentKey).(map[string]any); ok {
		call.SetAttribute(Name, attached)
	}
	return next.Invoke(ctx, call)
}

// placeOf returns the place that a provider's URL came with; nil where another
// registry told of it, or it is no more.
func placeOf(u *common.URL) *client.Place {
	if u == nil {
		return nil
	}
	place, _ := u.GetAttribute(Name)
	p, _ := place.(*client.Place)
	return p
}
