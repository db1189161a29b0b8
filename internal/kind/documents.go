package kind

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// A documentStore reads documents over its own connection, which exists while Run runs.
type documentStore interface {
	Run(ctx context.Context) error
	Document(ctx context.Context, ref metadata.Ref) (string, error)
}

// documentFuncs is a documentStore of two functions.
type documentFuncs struct {
	run  func(ctx context.Context) error
	read func(ctx context.Context, ref metadata.Ref) (string, error)
}

// Run implements documentStore.
func (s documentFuncs) Run(ctx context.Context) error { return s.run(ctx) }

// Document implements documentStore.
func (s documentFuncs) Document(ctx context.Context, ref metadata.Ref) (string, error) {
	return s.read(ctx, ref)
}

var errNotConnected = errors.New("not connected yet")

// A documentRegistry is the registry that stores the documents of another registry's
// instances. If it is nil, the registry of the instances stores the documents as well.
type documentRegistry struct {
	name string
	documentStore
}

// newDocumentRegistry returns the registry that stores the documents of a registry's
// instances, nil if it is the same registry.
func newDocumentRegistry(e *Env, name string) (*documentRegistry, error) {
	other := e.Config.Registries[name].Metadata
	if other == "" {
		return nil, nil //nolint:nilnil // the same registry stores instances and documents
	}
	documents := Of(e.Config.Registries[other]).Facilities().documents
	if documents == nil {
		return nil, fmt.Errorf("metadataRegistry: %s cannot store metadata", other)
	}
	s, err := documents(e, other, metadataRoot(e.Config, name))
	if err != nil {
		return nil, fmt.Errorf("metadataRegistry: %s: %w", other, err)
	}
	return &documentRegistry{other, s}, nil
}

// metadataRoot returns the path below which ZooKeeper stores the documents of a registry.
func metadataRoot(cfg *config.Config, name string) string {
	for _, u := range cfg.Uses() {
		if u.Read && u.Registry == name && u.Format.Format == dubbo.KindApplication {
			return u.Metadata
		}
	}
	return ""
}

// asker returns an Asker that reads stored documents from the registry, and asks providers
// for the others.
func (s *documentRegistry) asker(providers dependency.Asker) dependency.Asker {
	if s == nil {
		return providers
	}
	return storedAsker{providers, s}
}

type storedAsker struct {
	dependency.Asker

	stored *documentRegistry
}

// Ask implements dependency.Asker.
func (a storedAsker) Ask(ctx context.Context, ref metadata.Ref) (string, error) {
	if _, ok := dubbo.ParseMetadataRevision(ref.Key); !ok {
		return a.Asker.Ask(ctx, ref)
	}
	text, err := a.stored.Document(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("%s, the metadataRegistry: %w", a.stored.name, err)
	}
	return text, nil
}

// Question implements dependency.Asker. Each stored document has its own text.
func (a storedAsker) Question(ref metadata.Ref) string {
	if _, ok := dubbo.ParseMetadataRevision(ref.Key); ok {
		return ""
	}
	return a.Asker.Question(ref)
}

// runWith returns a source that also runs the connection to the document registry.
func (s *documentRegistry) runWith(from Source) Source {
	if s == nil {
		return from
	}
	return sourceWithDocuments{from, s}
}

type sourceWithDocuments struct {
	Source

	stored *documentRegistry
}

// Run implements registry.Source.
func (s sourceWithDocuments) Run(ctx context.Context, table *registry.Table) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := s.stored.Run(ctx); err != nil {
			return fmt.Errorf("metadataRegistry %s: %w", s.stored.name, err)
		}
		return nil
	})
	group.Go(func() error { return s.Source.Run(ctx, table) })
	return group.Wait()
}
