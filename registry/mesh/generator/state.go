package generator

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// mappingState is what follows from all readings so far. It does no I/O.
type mappingState struct {
	log        *slog.Logger
	keys       kube.Keys
	namespaces []string // none: all
	model      *kube.Model
	objects    map[objectID]modelObject // in the model

	replica      debug.ReplicaStatus // Answered: a reading was successful
	mapping      metadata.Mapping
	skipped      []metadata.PublicationError
	unreadObject error // why an object of the last reading is not known, or not current
}

// modelObject is an object of the model.
type modelObject struct {
	sum    [sha256.Size]byte
	object runtime.Object
}

func newMappingState(address string, r kube.Rules, namespaces []string, log *slog.Logger) *mappingState {
	return &mappingState{
		log: log, keys: r.Keys, namespaces: namespaces, model: kube.NewModel(r), objects: make(map[objectID]modelObject),
		replica: debug.ReplicaStatus{Replica: address},
	}
}

var errEmptied = errors.New("istiod sends no ServiceEntry any more, which is no proof that they are gone")

// apply applies a reading that began at a time, and reports whether the snapshot
// changed. The error is why the reading was refused, with which nothing changes.
func (s *mappingState) apply(r resourcesByKind, at time.Time) (changed bool, err error) {
	if len(r[serviceEntry]) == 0 && s.hasEntries() {
		err := &debug.Error{
			Cause: debug.Truncated, Where: "the api generator at " + s.replica.Replica, Err: errEmptied,
			Fix: "see the log of istiod; if the mesh is meant to be empty, restart the bridge",
		}
		return s.recordFailure(err), err
	}
	unread := s.updateModel(r)
	failed := s.replica.Err != nil
	if failed {
		s.log.Info("service keys read again", "replica", s.replica.Replica)
	}
	changed = failed || !s.replica.Answered || debug.ErrorKey(s.unreadObject) != debug.ErrorKey(unread)
	s.unreadObject = unread
	s.replica = debug.ReplicaStatus{Replica: s.replica.Replica, Answered: true, At: at}
	if s.model.Update().Keys {
		s.mapping, s.skipped = s.model.Mapping()
		changed = true
	}
	return changed, nil
}

// updateModel updates the model, and returns why an object could not be read. That object
// is kept; one without a readable name may be any, so that then none is removed.
func (s *mappingState) updateModel(r resourcesByKind) (unread error) {
	seen, nameless := make(map[objectID]struct{}), false
	for _, k := range objectKinds() {
		for _, resource := range r[k] {
			o, err := parseObject(k, resource, s.keys)
			if err != nil {
				if nameless = true; unread == nil {
					unread = err
				}
				continue
			}
			if _, twice := seen[o.objectID]; twice || len(s.namespaces) > 0 && !slices.Contains(s.namespaces, o.namespace) {
				continue
			}
			seen[o.objectID] = struct{}{}
			if err := s.putObject(&o); unread == nil {
				unread = err
			}
		}
	}
	if nameless {
		return unread
	}
	for i, k := range s.objects {
		if _, still := seen[i]; !still {
			delete(s.objects, i)
			s.model.Remove(k.object)
		}
	}
	return unread
}

func (s *mappingState) putObject(o *apiObject) error {
	if s.objects[o.objectID].sum == o.sum {
		return nil
	}
	decoded, err := o.decodeSpec()
	if err != nil {
		return err
	}
	s.objects[o.objectID] = modelObject{o.sum, decoded}
	s.model.Put(decoded)
	return nil
}

func (s *mappingState) hasEntries() bool {
	for i := range s.objects {
		if i.kind == serviceEntry {
			return true
		}
	}
	return false
}

// recordFailure records why a reading failed, and reports whether the snapshot changed.
func (s *mappingState) recordFailure(err error) (changed bool) {
	if changed = debug.ErrorKey(s.replica.Err) != debug.ErrorKey(err); changed {
		s.log.Warn("service keys not read, the last known ones are kept", "replica", s.replica.Replica, "err", err)
	}
	s.replica.Err = err
	return changed
}

func (s *mappingState) snapshot(now time.Time) debug.Snapshot {
	out := debug.Snapshot{
		Mapping: s.mapping, Complete: s.replica.Answered, Err: s.replica.Err, Unread: s.unreadObject, At: now,
		Replicas: []debug.ReplicaStatus{s.replica},
	}
	out.SetSkipped(s.skipped)
	return out
}
