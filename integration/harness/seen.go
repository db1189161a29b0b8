package harness

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Seen is one list of addresses that a registry's own client sent its
// subscriber.
type Seen struct {
	At        time.Time
	Addresses []string // host:port, in order
}

// EntryAddresses returns the address that each entry of a parent znode names, in
// order, which most formats do; what is not a URL is there as it is, without
// what the bridge puts before ids of its own.
func EntryAddresses(names []string) []string {
	hosts := make([]string, 0, len(names))
	for _, name := range names {
		host := name
		if text, err := url.QueryUnescape(name); err == nil {
			if u, err := url.Parse(text); err == nil && u.Host != "" {
				host = u.Host
			}
		}
		host = strings.TrimPrefix(host, "xdsb-")
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return hosts
}

// A Subscriber is somebody who is notified of the addresses of a service.
type Subscriber interface {
	Since(at time.Time) []Seen // the lists that it was sent after a moment, oldest first
	Last() []string            // what it was sent last; nothing where it was sent nothing
	Forget(before time.Time)   // lists before a moment, but not the last one
}

// Lists returns everything that the watch saw, oldest first.
func (w *ChildrenWatch) Lists() []Seen { return w.Since(time.Time{}) }

// Since returns what the watch saw after a moment, oldest first.
func (w *ChildrenWatch) Since(at time.Time) []Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Seen
	for _, s := range since(w.seen, at) {
		all = append(all, Seen{s.at, EntryAddresses(s.names)})
	}
	return all
}

// Last returns the addresses that the watch saw last.
func (w *ChildrenWatch) Last() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return EntryAddresses(w.seen[len(w.seen)-1].names)
}

// Forget drops what the watch saw before a moment, but not the last of it.
func (w *ChildrenWatch) Forget(before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = keepSince(w.seen, before)
}

// Lists returns everything that the watch saw, oldest first.
func (w *EndpointsWatch) Lists() []Seen { return w.Since(time.Time{}) }

// Since returns what the watch saw after a moment, oldest first.
func (w *EndpointsWatch) Since(at time.Time) []Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Seen
	for _, s := range since(w.seen, at) {
		all = append(all, Seen{s.at, s.names})
	}
	return all
}

// Last returns the addresses that the watch saw last.
func (w *EndpointsWatch) Last() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		return nil
	}
	return w.seen[len(w.seen)-1].names
}

// Forget drops what the watch saw before a moment, but not the last of it.
func (w *EndpointsWatch) Forget(before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = keepSince(w.seen, before)
}

func since(seen []sighting, at time.Time) []sighting {
	first := len(seen)
	for first > 0 && seen[first-1].at.After(at) {
		first--
	}
	return seen[first:]
}

func keepSince(seen []sighting, before time.Time) []sighting {
	kept := since(seen, before)
	if len(kept) == 0 && len(seen) > 0 {
		kept = seen[len(seen)-1:]
	}
	return slices.Clone(kept)
}
