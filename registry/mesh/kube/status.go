package kube

import "time"

// Feed is how the objects of one kind in one namespace are followed.
type Feed struct {
	Resource  string // as RBAC calls it
	Namespace string // empty: all
	Objects   int
	Listed    bool      // everything was told once over this connection
	Absent    bool      // the API has no such kind
	Lists     int       // full readings; more than one of a connection after 410 Gone
	Events    int       // changes that were told
	Err       error     // why it is not followed; it wraps *Forbidden where a right is missing
	Since     time.Time // of Err
}

// Status returns how everything is followed.
func (r *Reader) Status() []Feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Feed
	for _, f := range r.feeds {
		s := Feed{
			Resource: f.resource.String(), Namespace: f.namespace, Objects: len(f.objects), Listed: f.listed,
			Absent: f.absent, Lists: f.lists, Events: f.events, Err: f.err,
		}
		if f.err != nil {
			s.Since = f.since
		}
		all = append(all, s)
	}
	return all
}
