package nacos_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// exclusive is a layout that bears nobody beside it who says of himself that he
// is another.
type exclusive struct{ layout }

func (exclusive) Foreign(_ string, in metadata.NacosInstance) error {
	if in.Metadata["format"] != "" {
		return errors.New("is of " + in.Metadata["format"])
	}
	return nil
}

// TestNothingIsAddedWhereAnotherFormatStands: what is ours there stays as it
// is, and goes when it has to.
func TestNothingIsAddedWhereAnotherFormatStands(t *testing.T) {
	bubble(t, "an exclusive format", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		target, err := nacos.NewTarget(r.client, nacos.TargetOptions{Owner: mine.Owner, Layouts: []nacos.Layout{exclusive{}}})
		if err != nil {
			t.Fatal(err)
		}
		r.target = target
		first, second := entry(greeter, "10.0.0.1", mine), entry(greeter, "10.0.0.2", mine)
		r.write(t, first)
		r.server.Set(service(greeter), "app", model.Instance{
			Ip: "10.9.9.9", Port: 1, Enable: true, Healthy: true, Ephemeral: true, Metadata: map[string]string{"format": "another"},
		})
		r.read(t)
		c := change(greeter, first, second)
		c.Put[0].Old = &registry.Held{Entry: first, Owner: mine.Owner}
		if err := target.Write(t.Context(), c); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "10.9.9.9:1, which is of another") {
			t.Errorf("adding: %v", err)
		}
		r.expect(t, "10.0.0.1", "10.9.9.9")
		r.server.Set(service(greeter), "app")
		r.read(t)
		if err := target.Write(t.Context(), c); err != nil {
			t.Error(err)
		}
		r.expect(t, "10.0.0.1", "10.0.0.2")
	})
}
