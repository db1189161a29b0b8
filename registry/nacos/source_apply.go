package nacos

import (
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// received puts a push of instances into the inbox.
func (r *reader) received(k serviceKey, info *model.Service) { r.inbox.put(k, newSnapshot(info)) }

// pushes handles the pushes in the inbox. Servers leave out the namespace of a push: if services
// of its name are watched in several namespaces, all of them are read.
func (r *reader) pushes() {
	for k, n := range r.inbox.drain() {
		var candidates []*watchedService
		for _, s := range r.scopes {
			if w := s.watched[k.name]; w != nil && s.Group == k.group && !w.leaving {
				candidates = append(candidates, w)
			}
		}
		for _, w := range candidates {
			if len(candidates) > 1 {
				n.mixed = true
			}
			v := w.push(n)
			if v.accept {
				r.accept(w, n.snapshot)
			}
			if v.read != inTurn {
				r.requests.schedule(w, v.read)
			}
		}
	}
}

// answered handles the answer to a request. Before is the newest stamp when it was sent.
func (r *reader) answered(w *watchedService, t snapshot, before uint64, err error) {
	r.tableWriter.Answer(w.key.name)
	if err != nil {
		r.unanswered(w, err)
		return
	}
	if w.err != nil {
		w.err, r.marksOutdated = nil, true
		delete(w.scope.failing, w)
	}
	first := !w.known
	w.fails, r.throttled = 0, 0
	v := w.answer(t, before)
	if v.accept {
		r.accept(w, t)
		r.stopWaiting(w)
	}
	if !w.listed && w.count == 0 {
		r.drop(w)
		return
	}
	if first && v.read == inTurn {
		w.due = time.Now().Add(r.verifyDelay(w))
		return
	}
	r.requests.schedule(w, v.read)
}

// verifyDelay returns when a service is read again after its first read. A service without
// instances is read soon: it may have been listed before its instances could be read, and
// their push may be lost.
func (r *reader) verifyDelay(w *watchedService) time.Duration {
	if w.count == 0 && r.opts.VerifyInterval > 5*lookAgain {
		return lookAgain + rand.N(4*lookAgain) //nolint:gosec // spreads load, keeps no secret
	}
	return rand.N(r.opts.VerifyInterval) //nolint:gosec // as above
}

// unanswered handles a failed read of a service, whose rows are kept. With an Interest the first
// read does not wait for it, because each name is answered separately.
func (r *reader) unanswered(w *watchedService, err error) {
	w.fails++
	w.err, r.marksOutdated = err, true
	w.scope.failing[w] = struct{}{}
	r.failed(err)
	t := time.Now()
	switch {
	case errors.Is(err, ErrThrottled):
		w.due = r.resume
	case errors.Is(err, registry.ErrRefused):
		w.due = t.Add(r.opts.VerifyInterval)
		r.stopWaiting(w)
	default:
		w.due = t.Add(r.client.opts.requestBackoff(w.fails))
		if w.fails >= maxFailures || r.opts.Interest != nil {
			r.stopWaiting(w)
		}
	}
}

// accept replaces the content of a service by a snapshot.
func (r *reader) accept(w *watchedService, t snapshot) {
	if !errors.Is(t.protected, w.protected) {
		w.protected, r.marksOutdated = t.protected, true
	}
	if t.sum == w.sum {
		return
	}
	w.sum, w.count, w.instances = t.sum, len(t.instances), t.instances
	dependent := r.documents.require(w.groups, w.instances)
	r.marksOutdated = r.marksOutdated || dependent
	r.rebuild(w)
	if !dependent {
		w.instances = nil
	}
}

// fetched handles a fetched document, or the error of the fetch.
func (r *reader) fetched(result dependency.Result) {
	changed := r.documents.Accept(time.Now(), result)
	w := r.watched[keyOf(result.Ref.Group)]
	if w == nil || !changed {
		return // the service was removed meanwhile, or nothing changed
	}
	if result.Err != nil {
		r.log.Warn("document of instances not fetched",
			"group", result.Ref.Group.String(), "key", result.Ref.Key, "err", result.Err)
	}
	r.marksOutdated = true
	r.rebuild(w)
}

// rebuild decodes the instances of a service and reports its rows. The old rows are kept until
// all documents of the instances were fetched once.
func (r *reader) rebuild(w *watchedService) {
	if r.documents.unread(w.groups) {
		return
	}
	before := w.reported.Services
	now := registry.Reported{Skipped: make(map[string]string)}
	undecodable := make(map[string]error)
	for _, g := range w.groups {
		maps.Copy(undecodable, r.decode(w, g, &now))
	}
	w.lost, w.refused = w.lost.Next(undecodable, before), make(map[string]error)
	w.lost.Unknown(undecodable, w.refused)
	now.Services = registry.KeepEmpty(now.Services, before)
	r.tableWriter.Report(&w.reported, now)
	r.tableWriter.Answer(w.key.name)
}

// decode adds the rows of instances in one format, and skips invalid instances with a reason. It
// returns the instances that cannot be decoded because of a missing document.
func (r *reader) decode(w *watchedService, g formatGroup, to *registry.Reported) (undecodable map[string]error) {
	skip := func(key string, err error) { to.Skipped[g.group.String()+" "+key] = err.Error() }
	entries := make([]registry.Entry, 0, len(w.instances))
	for _, in := range w.instances {
		switch n := len(entries); {
		case in.err != nil:
			skip(in.key, in.err)
		case n > 0 && entries[n-1].Key == in.key: // of another connection
		default:
			entries = append(entries, registry.Entry{Group: g.group, Key: in.key, Value: in.text})
		}
	}
	services, failed := g.format.Decode(entries, r.documents.set.Documents(g.group))
	if dependent, ok := g.format.(HasDependencies); ok {
		undecodable = r.documents.set.Undecodable(failed, dependent.Dependencies)
	}
	for _, f := range failed {
		skip(f.Entry.Key, f.Err)
	}
	to.Services = append(to.Services, services...)
	return undecodable
}

// drop removes the rows of a service, and ends its subscription. Before the first read of a
// connection is complete, the removal is not reported: the rows are missing when the table is
// replaced.
func (r *reader) drop(w *watchedService) {
	r.tableWriter.Report(&w.reported, registry.Reported{})
	w.leaving = true
	r.requests.enqueue(w)
}
