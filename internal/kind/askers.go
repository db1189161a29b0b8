package kind

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dubborpc"
)

// askers ask providers for metadata that is not in the registry. The key is the location
// of a provider. An asker connects only to addresses that a bridge which reads the location
// allows.
type askers map[registry.Group]*dubborpc.Asker

func newAskers(cfg *config.Config, name string) askers {
	allow := make(map[registry.Group][]netip.Prefix)
	for _, u := range cfg.Uses() {
		if u.Read && u.Registry == name {
			at := projection.LocationOf(cfg.Registries[name], u.Format)
			allow[at] = append(allow[at], u.Bridge.Select.Allow...)
		}
	}
	all := make(askers, len(allow))
	for at, networks := range allow {
		all[at] = dubborpc.New(&naming.Reach{Allow: networks})
	}
	return all
}

// Ask implements dependency.Asker.
func (a askers) Ask(ctx context.Context, ref metadata.Ref) (string, error) {
	asker, ok := a[projection.PlaceOf(ref.Group)]
	if !ok {
		return "", fmt.Errorf("%w: no bridge reads %s", registry.ErrRefused, ref.Group)
	}
	return asker.Ask(ctx, ref)
}

// Question implements dependency.Asker.
func (a askers) Question(ref metadata.Ref) string {
	return a[projection.PlaceOf(ref.Group)].Question(ref)
}
