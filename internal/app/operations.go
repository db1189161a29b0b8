package app

import (
	"context"

	"github.com/xds-bridge/xds-bridge/internal/cause"
)

// Purge deletes everything that an owner or a bridge wrote.
func (p *Program) Purge(ctx context.Context, o PurgeOptions) (*Operation, error) {
	request, err := purge(o, p.load)
	if err != nil {
		return nil, err
	}
	return p.operate(ctx, request)
}

// Release removes the marks of an owner from its entries, which stay.
func (p *Program) Release(ctx context.Context, o ReleaseOptions) (*Operation, error) {
	request, err := release(o)
	if err != nil {
		return nil, err
	}
	return p.operate(ctx, request)
}

// Adopt puts the mark of the configuration's owner on entries of others.
func (p *Program) Adopt(ctx context.Context, o AdoptOptions) (*Operation, error) {
	cfg, err := p.load()
	if err != nil {
		return nil, err
	}
	signer, _, err := newSigner(cfg.OwnerKeys)
	if err != nil {
		return nil, cause.Usagef("ownerKeyFile: %w", err)
	}
	request, err := adopt(cfg, signer, o)
	if err != nil {
		return nil, err
	}
	return p.operate(ctx, request)
}

// operate carries a request out over connections of its own, to the targets and, if the
// request depends on them, to the sources.
func (p *Program) operate(ctx context.Context, request *operationRequest) (*Operation, error) {
	return request.carryOut(ctx, func(ctx context.Context, work func(context.Context, operationSession) error) error {
		cfg, err := p.load()
		if err != nil {
			return err
		}
		r, err := newRuntime(p, buildOptions{owner: request.as(), errorsOnly: true, dryRun: true, adopted: request.reassigned()})
		if err != nil {
			return err
		}
		defer r.close()
		s := operationSession{All: r.operationTargets(), Owner: r.cfg.Owner, Configured: cfg.Owner, Audit: r.audit}
		if s.Chosen, err = request.choose(s.All, p.File, p.remark); err != nil {
			return err
		}
		if !request.readsSources() {
			r.sources, r.registryIDs, r.keyPublishers = nil, nil, nil // nothing has to be known of the sources
		}
		return r.runWhile(ctx, request.Timeout, nil, func(ctx context.Context) error { return work(ctx, s) })
	})
}

func (r *runtime) operationTargets() []operationTarget {
	var all []operationTarget
	for _, t := range r.targets {
		all = append(all, operationTarget{
			Target: t.target, Name: t.name, Served: t.at.Listen != "", Persistent: t.persistent, Bridges: t.bridges,
			Owners: t.owners, Plan: t.loop.Plan,
		})
	}
	return all
}
