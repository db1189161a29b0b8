package dependency

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Documents returns the documents of a group that have a text, in order.
func (s *Set) Documents(group registry.Group) []registry.Entry {
	var out []registry.Entry
	for key, d := range s.groups[group] {
		if d.err == nil {
			out = append(out, registry.Entry{Group: group, Key: key, Value: d.answer.text})
		}
	}
	slices.SortFunc(out, registry.Entry.Compare)
	return out
}

// Why returns why a document has no text. It is nil if the document has a text, or if
// nothing depends on it.
func (s *Set) Why(ref metadata.Ref) error {
	if d := s.document(ref); d != nil {
		return d.err
	}
	return nil
}

// Unread reports whether a document of a group has no result yet.
func (s *Set) Unread(group registry.Group) bool {
	for _, d := range s.groups[group] {
		if d.err == errUnread { //nolint:errorlint // it is never wrapped
			return true
		}
	}
	return false
}

// Unknown returns an error that names the first unknown document of a group, with the
// cause and the time since when. It is nil if all documents are known.
func (s *Set) Unknown(group registry.Group) error {
	documents := s.groups[group]
	for _, key := range slices.Sorted(maps.Keys(documents)) {
		d := documents[key]
		if d.known() {
			continue
		}
		key = strings.TrimPrefix(key, registry.PartPrefix)
		if d.failingSince.IsZero() {
			return fmt.Errorf("%s %w", key, d.err)
		}
		return fmt.Errorf("%s, tried since %s: %w", key, d.failingSince.UTC().Format(time.RFC3339), d.err)
	}
	return nil
}

// Lost is the last known services of entries that cannot be decoded any more, by the
// keys of the entries. These services were not removed from the registry.
type Lost map[string][]registry.Name

// Undecodable returns the keys of the entries that cannot be decoded without their
// documents, with the reasons. If a document was refused, it adds the reason to the
// error of the entry.
func (s *Set) Undecodable(
	failed []metadata.DecodeError, dependencies func([]registry.Entry) []metadata.Ref,
) map[string]error {
	undecodable := make(map[string]error)
	for i, one := range failed {
		for _, ref := range dependencies([]registry.Entry{one.Entry}) {
			err := s.Why(ref)
			if err == nil {
				continue
			}
			undecodable[one.Entry.Key] = err
			if errors.Is(err, registry.ErrRefused) {
				failed[i].Err = fmt.Errorf("%w: %w", one.Err, err)
			}
		}
	}
	return undecodable
}

// Next returns the services that are lost with undecodable entries: the services of
// before with an endpoint at the host of the entry.
func (l Lost) Next(undecodable map[string]error, before []*registry.Service) Lost {
	next := make(Lost, len(undecodable))
	for key := range undecodable {
		names := l[key]
		for _, s := range before {
			if !slices.Contains(names, s.Name) && slices.ContainsFunc(s.Endpoints, func(e registry.Endpoint) bool {
				return strings.HasPrefix(key, net.JoinHostPort(e.Host, ""))
			}) {
				names = append(slices.Clip(names), s.Name)
			}
		}
		if len(names) > 0 {
			next[key] = names
		}
	}
	return next
}

// Unknown adds the services that are lost because a document was refused. A document
// that is not known yet makes the whole group unknown, see Set.Unknown.
func (l Lost) Unknown(undecodable, to map[string]error) {
	for key, names := range l {
		if err := undecodable[key]; errors.Is(err, registry.ErrRefused) {
			for _, name := range names {
				to[string(name)] = fmt.Errorf("%s provided it: %w", key, err)
			}
		}
	}
}
