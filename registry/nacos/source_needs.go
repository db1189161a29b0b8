package nacos

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Needy is a Format whose entries are understood only with what stands in
// configurations, or is known to their providers alone.
type Needy interface {
	Format

	// Needs names what has to be read beside the entries.
	Needs(entries []registry.Entry) []metadata.Ref

	// Config returns the configuration that stores it; without an id for what
	// Nacos does not store.
	Config(entry registry.Entry) (at metadata.NacosConfig, word string)
}

const (
	needRetry = 10 * time.Second // between attempts to get what was not to be had
	needGrace = 30 * time.Second // how long what is missing in Nacos counts as not known
)

var errNotStored = errors.New("is not stored yet")

// needs is what the instances of a service need, as far as it is there. It is
// never changed once made.
type needs struct {
	texts   map[metadata.Ref]string
	missing map[metadata.Ref]time.Time // since when
	asked   error                      // why something that is not stored was not told
}

func (n needs) extras() []registry.Entry {
	out := make([]registry.Entry, 0, len(n.texts))
	for ref, text := range n.texts {
		out = append(out, registry.Entry{Group: ref.Group, Key: ref.Key, Value: text})
	}
	return out
}

// refs returns what instances need.
func refs(homes []home, instances []instance) map[metadata.Ref]Needy {
	var all map[metadata.Ref]Needy
	for _, h := range homes {
		needy, ok := h.format.(Needy)
		if !ok {
			continue
		}
		entries := make([]registry.Entry, 0, len(instances))
		for _, in := range instances {
			if in.fault == nil {
				entries = append(entries, registry.Entry{Group: h.group, Key: in.key, Value: in.text})
			}
		}
		for _, ref := range needy.Needs(entries) {
			if all == nil {
				all = make(map[metadata.Ref]Needy)
			}
			all[ref] = needy
		}
	}
	return all
}

// satisfy reports whether all is there that instances need, or is known to be
// missing.
func (n needs) satisfy(homes []home, instances []instance) bool {
	for ref := range refs(homes, instances) {
		if _, ok := n.texts[ref]; !ok {
			return false
		}
	}
	return true
}

// need gets what instances need. A revision never changes, so that nothing is
// asked for twice.
func (r *reading) need(ctx context.Context, homes []home, instances []instance, before needs) (needs, error) {
	all := refs(homes, instances)
	if len(all) == 0 {
		return needs{}, nil
	}
	n := needs{texts: make(map[metadata.Ref]string, len(all)), missing: make(map[metadata.Ref]time.Time)}
	for ref, needy := range all {
		if text, ok := before.texts[ref]; ok {
			n.texts[ref] = text
			continue
		}
		at, _ := needy.Config(registry.Entry{Group: ref.Group, Key: ref.Key})
		if at.ID == "" {
			r.askFor(ctx, ref, &n)
			continue
		}
		text, there, err := configOf(ctx, r.cn, at)
		switch {
		case err != nil:
			return needs{}, err
		case there:
			n.texts[ref] = text
		case before.missing[ref].IsZero():
			n.missing[ref] = time.Now()
		default:
			n.missing[ref] = before.missing[ref]
		}
	}
	return n, nil
}

// askFor has a provider asked for what Nacos does not store.
func (r *reading) askFor(ctx context.Context, ref metadata.Ref, n *needs) {
	if r.opts.Ask == nil {
		return
	}
	text, err := r.opts.Ask(ctx, ref)
	if err == nil {
		n.texts[ref] = text
		return
	}
	r.log.Warn("a provider does not tell what it provides", "group", ref.Group.String(), "err", err)
	if !errors.Is(err, registry.ErrRefused) { // else it tells never
		n.asked = err
	}
}

// provide takes in what a service needs. What it tells is taken in anew where
// that makes a difference.
func (r *reading) provide(w *watched, n needs) {
	if !maps.Equal(n.texts, w.needs.texts) {
		clear(w.sum[:])
	}
	if n.lacking() != nil || w.needs.lacking() != nil {
		r.unsure = true
	}
	w.needs = n
}

// seek has a service asked for again that lacks something.
func (r *reading) seek(w *watched) {
	if w.needs.asked == nil && len(w.needs.missing) == 0 {
		return
	}
	due := time.Now().Add(needRetry)
	if w.needs.lacking() != nil && len(w.needs.missing) > 0 {
		due = time.Now().Add(lookAgain)
	}
	if w.due.IsZero() || due.Before(w.due) {
		w.due = due
	}
	r.unsure = true
}

// lacking returns why the services cannot be told for certain.
func (n needs) lacking() error {
	if n.asked != nil {
		return n.asked
	}
	for _, since := range n.missing {
		if time.Since(since) < needGrace {
			return errNotStored
		}
	}
	return nil
}

// doubt adds the services that cannot be told for certain.
func (w *watched) doubt(to map[string]error) {
	err := w.needs.lacking()
	if err == nil {
		return
	}
	for _, h := range w.homes {
		if _, ok := h.format.(Needy); ok {
			to[h.group.String()+"/*"] = err
		}
	}
}
