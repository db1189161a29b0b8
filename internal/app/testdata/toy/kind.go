package kind

import (
	"context"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// toys are the toys of the process by name.
var toys sync.Map

// toyKind is a registry in the memory of the process.
type toyKind struct{ *config.Toy }

// ToyTarget returns the toy of a name.
func ToyTarget(name string) *memory.Target {
	made := memory.New(memory.Options{Mark: func(e registry.Entry) string {
		m, _ := metadata.MarkOf(e)
		return m.Owner
	}})
	kept, _ := toys.LoadOrStore(name, made)
	return kept.(*memory.Target)
}

func (toyKind) Title() string { return "toy" }

func (toyKind) Facilities() Facilities { return Facilities{} }

func (t toyKind) Source(e *Env, name string) (Source, error) {
	s := toySource{target: ToyTarget(t.Name)}
	for _, u := range projection.Readings(e.Config, name) {
		c, err := projection.NewCodec[metadata.Codec](e.maker(), u, "toy")
		if err != nil {
			return nil, err
		}
		s.codecs = append(s.codecs, c)
	}
	return s, nil
}

func (t toyKind) Connection(e *Env, at config.TargetKey) (*Connection, error) {
	return &Connection{Connector: toyConnection{at.Registry, ToyTarget(t.Name)}}, nil
}

type toySource struct {
	target *memory.Target
	codecs []metadata.Codec
}

func (s toySource) Run(ctx context.Context, table *registry.Table) error {
	var all []*registry.Service
	for _, c := range s.codecs {
		services, _ := c.Decode(s.target.Entries(), nil)
		all = append(all, services...)
	}
	table.Replace(slices.Values(all))
	return untilDone(ctx)
}

func (toySource) Recheck() {}

func (toySource) State() admin.SourceState { return admin.SourceState{Connected: true} }

func (toySource) Check(_ context.Context, f *preflight.Findings) { f.Pass("reachable", "it is here") }

type toyConnection struct {
	name   string
	target *memory.Target
}

func (toyConnection) Run(ctx context.Context) error { return untilDone(ctx) }

func (toyConnection) Close() {}

func (toyConnection) State() admin.TargetState { return admin.TargetState{Connected: true} }

func (c toyConnection) Bind(e *Env, bridges []config.Bridge, former []config.Use) (*Bound, error) {
	codecs, _, err := projection.NewCodecs[metadata.Codec](e.maker(), c.name, "toy", bridges, former)
	return &Bound{Target: c.target, Codecs: codecs, Check: toySource{}.Check}, err
}
