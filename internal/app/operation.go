package app

import (
	"context"

	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/internal/operation"
)

// Purge deletes everything that an owner or a bridge wrote.
func (p *Program) Purge(ctx context.Context, o operation.PurgeOptions) (*operation.Result, error) {
	request, err := operation.Purge(o, p.load)
	if err != nil {
		return nil, err
	}
	return p.operate(ctx, request)
}

// Release removes the marks of an owner from its entries, which stay.
func (p *Program) Release(ctx context.Context, o operation.ReleaseOptions) (*operation.Result, error) {
	request, err := operation.Release(o)
	if err != nil {
		return nil, err
	}
	return p.operate(ctx, request)
}

// Adopt puts the mark of the configuration's owner on entries of others.
func (p *Program) Adopt(ctx context.Context, o operation.AdoptOptions) (*operation.Result, error) {
	cfg, err := p.load()
	if err != nil {
		return nil, err
	}
	signer, _, err := newSigner(cfg.OwnerKeys)
	if err != nil {
		return nil, cause.Usagef("ownerKeyFile: %w", err)
	}
	request, err := operation.Adopt(cfg, signer, o)
	if err != nil {
		return nil, err
	}
	return p.operate(ctx, request)
}

// operate carries a request out over connections of its own, to the targets and, if the
// request depends on them, to the sources.
func (p *Program) operate(ctx context.Context, request *operation.Request) (*operation.Result, error) {
	return request.Do(ctx, func(ctx context.Context, work func(context.Context, operation.Session) error) error {
		cfg, err := p.load()
		if err != nil {
			return err
		}
		r, err := newRuntime(p, buildOptions{owner: request.As(), errorsOnly: true, dryRun: true, adopted: request.Adopted()})
		if err != nil {
			return err
		}
		defer r.close()
		s := operation.Session{All: r.operationTargets(), Owner: r.cfg.Owner, Configured: cfg.Owner, Audit: r.audit}
		if s.Chosen, err = request.Choose(s.All, p.File, p.remark); err != nil {
			return err
		}
		if !request.ReadsSources() {
			r.sources, r.registryIDs, r.keyPublishers = nil, nil, nil // nothing has to be known of the sources
		}
		return r.runWhile(ctx, request.Timeout, nil, func(ctx context.Context) error { return work(ctx, s) })
	})
}

func (r *runtime) operationTargets() []operation.Target {
	var all []operation.Target
	for _, t := range r.targets {
		all = append(all, operation.Target{
			Target: t.Target, Name: t.name, Served: t.at.Listen != "", Persistent: t.Persistent, Bridges: t.Bridges,
			Owners: t.Owners, Plan: t.loop.Plan,
		})
	}
	return all
}
