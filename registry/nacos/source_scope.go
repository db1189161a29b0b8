package nacos

import (
	"errors"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// maxFailures is how often a list or service may fail before the first reading
// continues without it.
const maxFailures = 3

// listed handles a list of names, or the error instead. New services are
// subscribed; missing ones are read before anything is concluded.
func (r *reader) listed(s *scope, names []string, err error) {
	s.asking, r.marksOutdated = false, true
	t := time.Now()
	if err != nil {
		s.fails++
		s.due = t.Add(max(r.opts.ListInterval, r.client.opts.requestBackoff(s.fails)))
		if s.fails == 1 {
			r.log.Warn("nacos services not listed, trying on", "namespace", s.Namespace, "group", s.Group, "err", err)
		}
		s.err = err
		r.failed(err)
		return
	}
	if r.synced && !s.listed {
		r.synced = false // the table is replaced: rows may be missing without a report that they went
	}
	r.throttled = 0
	s.listed, s.fails, s.err, s.due = true, 0, nil, t.Add(r.opts.ListInterval)
	here := make(map[string]bool, len(names))
	for _, name := range names {
		here[name] = r.seen(s, name)
	}
	for name, w := range s.watched {
		if !here[name] {
			r.missing(w)
		}
	}
}

// syncInterest subscribes the services of Interest, in place of a list, and ends
// the other subscriptions.
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

// stateOf returns why a name is unknown, nil if the table has all its services;
// not ok while it is being read.
func (r *reader) stateOf(name string) (err error, ok bool) {
	for _, s := range r.scopes {
		w := s.watched[name]
		switch {
		case w == nil && len(r.opts.groupsOf(s.Scope, name)) == 0: // no service has that name
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

// seen has a listed service subscribed, false if it is not to be read.
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

// await has a service read, and the first reading wait for it.
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
		r.forget(w)
	case !r.synced && fresh: // an earlier connection reported instances
		w.listed = false
		r.await(w)
	case w.listed:
		w.listed = false
		r.requests.schedule(w, now)
	}
}

// groupsOf returns the groups of a service in all formats.
func (o SourceOptions) groupsOf(s Scope, name string) []formatGroup {
	var out []formatGroup
	for _, f := range o.Formats {
		if g, ok := f.GroupOf(s.Namespace, s.Group, name); ok {
			out = append(out, formatGroup{format: f, group: g})
		}
	}
	return out
}

func (s *scope) isDone() bool {
	return s.listed || s.err != nil && (errors.Is(s.err, registry.ErrRefused) || s.fails >= maxFailures && !errors.Is(s.err, ErrThrottled))
}

// forget removes a service and what was reported of its instances, but not its
// rows.
func (r *reader) forget(w *watchedService) {
	r.stopWaiting(w)
	w.queued, r.marksOutdated = false, true
	r.tableWriter.Report(&w.reported, registry.Reported{})
	r.documents.require(w.groups, nil)
	delete(r.watched, w.key)
	delete(w.scope.watched, w.key.name)
	delete(w.scope.failing, w)
}

func (r *reader) stopWaiting(w *watchedService) {
	if w.pending {
		w.pending = false
		r.pending--
	}
}

// failed handles a failed request. A server that throttles is not asked for a
// while. With an Interest a failure is that of its own name, not of the table.
func (r *reader) failed(err error) {
	if t := time.Now(); errors.Is(err, ErrThrottled) && !t.Before(r.resume) {
		r.throttled++
		wait := r.client.opts.requestBackoff(r.throttled)
		r.resume = t.Add(wait)
		if r.throttled == 1 {
			r.log.Warn("nacos throttles, reading is paused", "retry_in", wait, "err", err)
		}
	}
	if !r.synced && (r.opts.Interest == nil || errors.Is(err, ErrThrottled)) {
		r.table.Stale(err)
	}
}
