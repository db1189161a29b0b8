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

// mappingState is the mapping after all readings so far. It does no I/O. Only the goroutine
// of Run touches it.
type mappingState struct {
	// Immutable.
	log        *slog.Logger
	keys       kube.Keys
	namespaces []string // empty: all

	model   *kube.Model
	objects map[objectID]modelObject // all objects in the model

	replica debug.ReplicaStatus // its Answered is true after the first successful reading
	mapping metadata.Mapping
	skipped []metadata.PublicationError

	// unreadObject is the error of an object in the last reading that could not be decoded,
	// so that it is unknown or out of date.
	unreadObject error
}

// modelObject is an object in the model.
type modelObject struct {
	sum    [sha256.Size]byte // hash of the resource that it was decoded from
	object runtime.Object
}

func newMappingState(address string, r kube.Rules, namespaces []string, log *slog.Logger) *mappingState {
	return &mappingState{
		log: log, keys: r.Keys, namespaces: namespaces,
		model: kube.NewModel(r), objects: make(map[objectID]modelObject),
		replica: debug.ReplicaStatus{Replica: address},
	}
}

var errEmptied = errors.New("istiod no longer sends any ServiceEntry, which does not prove that they were deleted")

// apply applies a reading that began at a time, and reports whether the snapshot changed. It
// fails if the reading is implausible; then the known objects are kept.
func (s *mappingState) apply(r resourcesByKind, at time.Time) (changed bool, err error) {
	if len(r[serviceEntry]) == 0 && s.hasEntries() {
		err := &debug.Error{
			Cause: debug.Truncated, Where: "the api generator at " + s.replica.Replica, Err: errEmptied,
			Fix: "check the log of istiod; if the mesh is meant to be empty, restart the bridge",
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

// updateModel updates the model by a reading. It returns the error of the first object that
// could not be decoded, which is kept as it was. If an object has no readable name, it may
// be any of those that are missing, so that none is removed.
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

// putObject puts an object into the model, unless it is unchanged.
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

// hasEntries reports whether the model has a ServiceEntry.
func (s *mappingState) hasEntries() bool {
	for i := range s.objects {
		if i.kind == serviceEntry {
			return true
		}
	}
	return false
}

// recordFailure records the error of a reading, and reports whether the snapshot changed.
func (s *mappingState) recordFailure(err error) (changed bool) {
	if changed = debug.ErrorKey(s.replica.Err) != debug.ErrorKey(err); changed {
		s.log.Warn("service keys not read, keeping the last known ones", "replica", s.replica.Replica, "err", err)
	}
	s.replica.Err = err
	return changed
}

// snapshot returns the mapping and the state of its readings.
func (s *mappingState) snapshot(now time.Time) debug.Snapshot {
	out := debug.Snapshot{
		Mapping: s.mapping, Complete: s.replica.Answered, Err: s.replica.Err, Unread: s.unreadObject, At: now,
		Replicas: []debug.ReplicaStatus{s.replica},
	}
	out.SetSkipped(s.skipped)
	return out
}
