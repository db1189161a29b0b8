package nacos

import (
	"errors"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// maxFailures is the number of failures of a list or service after which the first read
// continues without it.
const maxFailures = 3

// listed handles a list of names, or its error. It subscribes new services. Missing services
// are read before they count as removed.
func (r *reader) listed(s *scope, names []string, err error) {
	s.asking, r.marksOutdated = false, true
	t := time.Now()
	if err != nil {
		s.fails++
		s.due = t.Add(max(r.opts.ListInterval, r.client.opts.requestBackoff(s.fails)))
		if s.fails == 1 {
			r.log.Warn("nacos services not listed, retrying", "namespace", s.Namespace, "group", s.Group, "err", err)
		}
		s.err = err
		r.failed(err)
		return
	}
	if r.synced && !s.listed {
		r.synced = false // the table will be replaced, because the removal of rows may not be reported
	}
	r.throttled = 0
	s.listed, s.fails, s.err, s.due = true, 0, nil, t.Add(r.opts.ListInterval)
	exists := make(map[string]bool, len(names))
	for _, name := range names {
		exists[name] = r.seen(s, name)
	}
	for name, w := range s.watched {
		if !exists[name] {
			r.missing(w)
		}
	}
}

// syncInterest subscribes the services of Interest, instead of those of a list, and ends the
// other subscriptions.
func (r *reader) syncInterest() {
	if r.opts.Interest == nil || r.interestSynced {
		return
	}
	r.interestSynced = true
	for _, s := range r.scopes {
		for name, w := range s.watched {
			if !w.leaving && !r.opts.Interest.Wants(name) {
				r.stopWaiting(w)
				r.drop(w)
			}
		}
		s.listed = true
		for _, name := range r.opts.Interest.Names() {
			r.seen(s, name)
		}
	}
	r.tableWriter.Answer(r.opts.Interest.Unreported()...)
}

// stateOf returns why a name is unknown; nil if the table has all its services. It returns
// false while the name is being read.
func (r *reader) stateOf(name string) (err error, ok bool) {
	for _, s := range r.scopes {
		w := s.watched[name]
		switch {
		case w == nil && len(r.opts.groupsOf(s.Scope, name)) == 0: // no format has services of this name
		case w == nil || w.leaving:
			return nil, false
		case w.err != nil:
			err = w.err
		case !w.known || r.documents.unread(w.groups):
			return nil, false
		}
	}
	return err, true
}

// seen subscribes a listed service. It returns false if the service is of no format.
func (r *reader) seen(s *scope, name string) bool {
	w := s.watched[name]
	if w == nil {
		groups := r.opts.groupsOf(s.Scope, name)
		if len(groups) == 0 {
			return false
		}
		w = &watchedService{key: serviceKey{s.Namespace, s.Group, name}, groups: groups, scope: s}
		s.watched[name] = w
		r.watched[w.key] = w
	}
	w.listed = true
	if !w.known && w.fails == 0 && !w.asking && !w.queued && !w.leaving {
		r.await(w)
	}
	return true
}

// await queues a service to be read, and makes the first read wait for it.
func (r *reader) await(w *watchedService) {
	if !r.synced && !w.pending {
		w.pending = true
		r.pending++
	}
	r.requests.enqueue(w)
}

// missing handles a service that is not in a list.
func (r *reader) missing(w *watchedService) {
	fresh := !w.known && w.fails == 0 && !w.asking && !w.queued
	switch {
	case w.leaving:
	case !r.synced && w.count == 0:
		r.remove(w)
	case !r.synced && fresh: // with instances of an earlier connection
		w.listed = false
		r.await(w)
	case w.listed:
		w.listed = false
		r.requests.schedule(w, now)
	}
}

// groupsOf returns the group of a service in each format.
func (o SourceOptions) groupsOf(s Scope, name string) []formatGroup {
	var out []formatGroup
	for _, f := range o.Formats {
		if g, ok := f.GroupOf(s.Namespace, s.Group, name); ok {
			out = append(out, formatGroup{format: f, group: g})
		}
	}
	return out
}

// isDone reports whether the first read need not wait for the list of the scope.
func (s *scope) isDone() bool {
	failed := errors.Is(s.err, registry.ErrRefused) || s.fails >= maxFailures && !errors.Is(s.err, ErrThrottled)
	return s.listed || s.err != nil && failed
}

// remove removes a service.
func (r *reader) remove(w *watchedService) {
	r.stopWaiting(w)
	w.queued, r.marksOutdated = false, true
	r.tableWriter.Report(&w.reported, registry.Reported{})
	r.documents.require(w.groups, nil)
	delete(r.watched, w.key)
	delete(w.scope.watched, w.key.name)
	delete(w.scope.failing, w)
}

// stopWaiting ends the wait of the first read for a service.
func (r *reader) stopWaiting(w *watchedService) {
	if w.pending {
		w.pending = false
		r.pending--
	}
}

// failed handles a failed request. A server that throttles gets no request for a while. With an
// Interest a failure affects only its name, and not the table.
func (r *reader) failed(err error) {
	if t := time.Now(); errors.Is(err, ErrThrottled) && !t.Before(r.resume) {
		r.throttled++
		wait := r.client.opts.requestBackoff(r.throttled)
		r.resume = t.Add(wait)
		if r.throttled == 1 {
			r.log.Warn("nacos throttles requests, reads are paused", "retry_in", wait, "err", err)
		}
	}
	if !r.synced && (r.opts.Interest == nil || errors.Is(err, ErrThrottled)) {
		r.table.Stale(err)
	}
}
