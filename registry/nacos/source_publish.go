package nacos

import (
	"maps"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// publish writes to the table what has changed since the last call.
func (r *reader) publish() {
	if r.marksOutdated {
		r.tableWriter.Report(&r.marks, registry.Reported{Unknown: r.unknown()})
		r.marksOutdated = false
	}
	switch {
	case r.synced:
		r.tableWriter.Apply()
	case r.complete():
		r.replace()
	}
}

// complete reports whether the first read of the connection is complete.
func (r *reader) complete() bool {
	listed := false
	for _, s := range r.scopes {
		if !s.isDone() {
			return false
		}
		listed = listed || s.listed
	}
	return listed && r.pending == 0 && r.documents.set.Resolved()
}

// replace replaces the table after the first read.
func (r *reader) replace() {
	r.tableWriter.Answer(r.opts.Interest.Names()...)
	r.synced = true
	r.tableWriter.Replace()
	r.log.Info("nacos read", "server", r.cn.server.grpc, "services", len(r.watched))
}

// unknown returns the unknown scopes and services. A scope is unknown as a whole if many of its
// services cannot be read.
func (r *reader) unknown() map[string]error {
	unknown := make(map[string]error)
	for _, s := range r.scopes {
		if err := s.unreadable(); err != nil {
			for _, f := range r.opts.Formats {
				all := registry.Group{Kind: f.Kind(), Namespace: s.Namespace, Group: s.Group, Name: "*"}
				unknown[all.String()] = err
			}
			continue
		}
		for w := range s.failing {
			w.unknown(unknown, w.err)
		}
		for _, w := range s.watched {
			if w.err == nil {
				w.unknown(unknown, w.protected)
			}
			maps.Copy(unknown, w.refused)
			r.documents.unknown(w.groups, unknown)
		}
	}
	return unknown
}

// unreadable returns why a scope is unknown as a whole; nil if it is not.
func (s *scope) unreadable() error {
	const many = 64
	if s.err == nil && len(s.failing) > many {
		for w := range s.failing {
			return w.err
		}
	}
	return s.err
}

// unknown adds a service that is unknown for a reason: the scopes of all rows that it may have,
// and its current rows. Without a reason it adds nothing.
func (w *watchedService) unknown(to map[string]error, reason error) {
	if reason == nil {
		return
	}
	for _, g := range w.groups {
		to[metadata.ScopeOf(g.format, g.group)] = reason
	}
	for _, s := range w.reported.Services {
		to[string(s.Name)] = reason
	}
}
