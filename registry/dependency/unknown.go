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

// Documents returns the documents of a group as far as they are known, in
// their order.
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

// Why returns why a document is not there, nil where it is or nothing depends
// on it.
func (s *Set) Why(ref metadata.Ref) error {
	if d := s.of(ref); d != nil {
		return d.err
	}
	return nil
}

// Unread reports whether there is a document in a group of which nothing is
// known yet, neither its text nor why it cannot be had.
func (s *Set) Unread(group registry.Group) bool {
	for _, d := range s.groups[group] {
		if d.err == errUnread { //nolint:errorlint // it is this one, or another
			return true
		}
	}
	return false
}

// Unknown returns why what a group tells cannot be relied on: the first of its
// documents that is not known, and since when. It is nil where all are.
func (s *Set) Unknown(group registry.Group) error {
	documents := s.groups[group]
	for _, key := range slices.Sorted(maps.Keys(documents)) {
		d := documents[key]
		if d.known() {
			continue
		}
		key = strings.TrimPrefix(key, registry.PartPrefix)
		if d.since.IsZero() {
			return fmt.Errorf("%s %w", key, d.err)
		}
		return fmt.Errorf("%s, tried since %s: %w", key, d.since.UTC().Format(time.RFC3339), d.err)
	}
	return nil
}

// Lost is of which services entries told before they could not be understood
// any more, by the keys of the entries. Nobody took these services back.
type Lost map[string][]registry.Name

// Undecodable returns which entries could not be understood for want of what they
// refer to, each with the reason. It adds that to faults of entries of which it
// can never be had.
func (s *Set) Undecodable(failed []metadata.DecodeError, dependencies func([]registry.Entry) []metadata.Ref) map[string]error {
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

// Next returns what is lost by entries that cannot be understood, of which some
// may have provided the services that were told before.
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

// Unknown adds the services that are lost because something can never be had.
// What is only not known yet makes all of a group unknown, as Set.Unknown tells.
func (l Lost) Unknown(undecodable, to map[string]error) {
	for key, names := range l {
		if err := undecodable[key]; errors.Is(err, registry.ErrRefused) {
			for _, name := range names {
				to[string(name)] = fmt.Errorf("%s provided it: %w", key, err)
			}
		}
	}
}
