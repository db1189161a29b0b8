// Package dubborpc asks providers of Dubbo what they provide. Providers that
// register an application and keep what it provides to themselves answer a
// MetadataService; nothing else of Dubbo's calls is spoken here.
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
	pause   = 8 * time.Second // after a provider did not answer
	largest = 256 << 10       // bytes of an answer, as it comes and as it is kept
)

// Asker asks providers, and keeps nothing of what they answer. An answer that is
// of another application or revision, or reports nothing, is none: the address
// may have become another's, or the provider may not have exported anything yet.
// It is safe for use by many goroutines.
type Asker struct {
	reach *naming.Reach

	mu     sync.Mutex
	failed map[string]failure // by address
}

type failure struct {
	err   error
	until time.Time
}

// New returns an Asker that calls addresses within a reach only; nil is
// everywhere.
func New(reach *naming.Reach) *Asker {
	return &Asker{reach: reach, failed: make(map[string]failure)}
}

// Same names the question that a reference asks: a revision never changes, and
// all instances of one provide the same. It is empty where no provider is asked.
func (*Asker) Same(ref metadata.Ref) string {
	m, ok := dubbo.ParseMetadataService(ref.Key)
	if !ok {
		return ""
	}
	return ref.Group.String() + " " + m.Revision
}

// Ask returns the document that says what a provider provides. An error that
// wraps registry.ErrRefused says that it cannot be asked.
func (a *Asker) Ask(ctx context.Context, ref metadata.Ref) (string, error) {
	m, ok := dubbo.ParseMetadataService(ref.Key)
	if !ok {
		return "", fmt.Errorf("%w: %.80q is nothing that a provider tells", registry.ErrRefused, ref.Key)
	}
	if a.reach != nil {
		if reason := a.reach.Refuse(m.Host); reason != "" {
			return "", fmt.Errorf("%w: provider at %s: %s", registry.ErrRefused, m.Address(), reason)
		}
	}
	if err := a.failure(m.Address()); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d := &dialer{reach: a.reach}
	text, err := call(ctx, m, d)
	if reason := d.refusal(); err != nil && reason != "" {
		err = fmt.Errorf("%w: %s", registry.ErrRefused, reason)
	}
	if err != nil {
		err = fmt.Errorf("ask %s://%s what it provides: %w", m.Protocol, m.Address(), err)
	}
	a.note(m.Address(), err)
	return text, err
}

// failure returns why a provider that did not answer is left alone for a while.
func (a *Asker) failure(address string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, ok := a.failed[address]; ok && time.Now().Before(f.until) {
		return f.err
	}
	return nil
}

func (a *Asker) note(address string, err error) {
	if err == nil || errors.Is(err, errAnother) || errors.Is(err, errNothing) {
		return // it answers, and may do better the next time
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.failed, func(_ string, f failure) bool { return now.After(f.until) })
	a.failed[address] = failure{err, now.Add(pause)}
}

// A dialer connects to addresses within a reach. A name is held to it by the
// addresses that it turns out to have.
type dialer struct {
	reach *naming.Reach

	mu      sync.Mutex
	refused string
}

func (d *dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Control: d.control}).DialContext(ctx, "tcp", address) //nolint:wrapcheck // Ask wraps it
}

// control implements net.Dialer.Control, which sees each address that a name has.
func (d *dialer) control(_, address string, _ syscall.RawConn) error {
	if d.reach == nil {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err //nolint:wrapcheck // Ask wraps it
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

// call makes one call in the protocol that the provider speaks.
func call(ctx context.Context, m dubbo.MetadataService, d *dialer) (string, error) {
	switch {
	case m.Protocol == "tri" && m.Version == "2.0.0":
		return callTriple(ctx, m, d)
	default:
		return "", fmt.Errorf("%w: its MetadataService %s speaks %s, which is not spoken here", registry.ErrRefused, m.Version, m.Protocol)
	}
}
