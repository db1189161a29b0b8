// Package dubborpc calls the MetadataService of Dubbo providers. It returns the metadata
// of providers that do not store their metadata in a registry. It makes no other calls.
package dubborpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The limits of an Asker.
const (
	timeout = 2 * time.Second
	pause   = 8 * time.Second // before a provider that did not answer is called again
	maxSize = 256 << 10       // bytes of a response, and of the document
)

// Asker calls providers and caches no responses. A response of another application or
// revision, or one without services, is an error: the address may now belong to another
// provider, or the provider has exported nothing yet. An Asker is safe for concurrent
// use.
type Asker struct {
	reach *naming.Reach

	mu     sync.Mutex
	failed map[string]failure // by address
}

type failure struct {
	err   error
	until time.Time
}

// New returns an Asker that calls only addresses within a reach, or all if it is nil.
func New(reach *naming.Reach) *Asker {
	return &Asker{reach: reach, failed: make(map[string]failure)}
}

// Question implements dependency.Asker: all instances of a revision have the same document.
func (*Asker) Question(ref metadata.Ref) string {
	m, ok := dubbo.ParseMetadataService(ref.Key)
	if !ok {
		return ""
	}
	return ref.Group.String() + " " + m.Revision
}

// Ask calls a provider and returns its document. The error wraps registry.ErrRefused if
// the provider must not be called or its response cannot be used.
func (a *Asker) Ask(ctx context.Context, ref metadata.Ref) (string, error) {
	m, ok := dubbo.ParseMetadataService(ref.Key)
	if !ok {
		return "", fmt.Errorf("%w: no provider returns %.80q", registry.ErrRefused, ref.Key)
	}
	if a.reach != nil {
		if reason := a.reach.Refuse(m.Host); reason != "" {
			return "", fmt.Errorf("%w: provider at %s: %s", registry.ErrRefused, m.Address(), reason)
		}
	}
	if err := a.recentFailure(m.Address()); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d := &dialer{reach: a.reach}
	text, err := callTriple(ctx, m, d)
	if reason := d.refusal(); err != nil && reason != "" {
		err = fmt.Errorf("%w: %s", registry.ErrRefused, reason)
	}
	if err != nil {
		err = fmt.Errorf("get metadata of provider %s://%s: %w", m.Protocol, m.Address(), err)
	}
	a.recordFailure(m.Address(), err)
	return text, err
}

// recentFailure returns the error of a provider that did not answer during the pause.
func (a *Asker) recentFailure(address string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, ok := a.failed[address]; ok && time.Now().Before(f.until) {
		return f.err
	}
	return nil
}

// recordFailure records the error of a provider that did not answer.
func (a *Asker) recordFailure(address string, err error) {
	if err == nil || errors.Is(err, errOtherProvider) || errors.Is(err, errNoService) {
		return // it answers, and may have the document next time
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.failed, func(_ string, f failure) bool { return now.After(f.until) })
	a.failed[address] = failure{err, now.Add(pause)}
}

// A dialer connects only to addresses within a reach. For a host name it checks each
// address that the name resolves to.
type dialer struct {
	reach *naming.Reach

	mu      sync.Mutex
	refused string
}

func (d *dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Control: d.control}).DialContext(ctx, "tcp", address)
}

// control implements net.Dialer.Control, which is called for each resolved address.
func (d *dialer) control(_, address string, _ syscall.RawConn) error {
	if d.reach == nil {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	reason := d.reach.Refuse(host)
	if reason == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = host + " is a " + reason
	return fmt.Errorf("%w: %s", registry.ErrRefused, d.refused)
}

func (d *dialer) refusal() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused
}
