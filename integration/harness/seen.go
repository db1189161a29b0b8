package harness

import (
	"net/url"
	"slices"
	"time"
)

// Seen is one list of addresses that a registry's own client told its
// subscriber.
type Seen struct {
	At        time.Time
	Addresses []string // host:port, in order
}

// EntryAddresses returns the address that each entry of a folder of Dubbo
// names, in order; what is no URL stands there as it is.
func EntryAddresses(names []string) []string {
	hosts := make([]string, 0, len(names))
	for _, name := range names {
		host := name
		if text, err := url.QueryUnescape(name); err == nil {
			if u, err := url.Parse(text); err == nil {
				host = u.Host
			}
		}
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return hosts
}

// Lists returns everything that the watch saw, oldest first.
func (w *ChildrenWatch) Lists() []Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Seen, 0, len(w.seen))
	for _, s := range w.seen {
		all = append(all, Seen{s.at, EntryAddresses(s.names)})
	}
	return all
}

// Lists returns everything that the watch saw, oldest first.
func (w *EndpointsWatch) Lists() []Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Seen, 0, len(w.seen))
	for _, s := range w.seen {
		all = append(all, Seen{s.at, s.names})
	}
	return all
}
