package admin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Document is the answer to GET /api/v1/status, and what the command status prints as
// JSON. Its names are stable: fields are only ever added.
type Document struct {
	Version string    `json:"version"`
	Owner   string    `json:"owner"`
	Started time.Time `json:"started"`
	Time    time.Time `json:"time"` // of this document

	Ready      bool        `json:"ready"`   // every source was complete once, and every target was listed
	InSync     bool        `json:"in_sync"` // there is no condition, except those that end by themselves
	Conditions []Condition `json:"conditions"`

	Sources  []Source        `json:"sources"`
	Targets  []TargetStatus  `json:"targets"` // the connections of targets; Loops has the entries
	Loops    []bridge.Status `json:"loops"`
	Replicas *Replicas       `json:"replicas,omitempty"` // nil if there is only one replica
	Reload   *Reload         `json:"reload,omitempty"`   // the last reload; nil before the first
}

// Overview is the state of sources and loops without lists: only numbers.
type Overview struct {
	Time       time.Time
	Owner      string
	Version    string
	Sources    []SourceOverview
	Targets    []TargetOverview
	Replicas   *Replicas // nil if there is only one replica
	Conditions []Condition
}

// SourceOverview is one registry that the bridge reads.
type SourceOverview struct {
	Name, Kind string
	Connection Connection
	registry.Summary
	Mapping *Mapping // only of a mesh
}

// TargetOverview is one target that the bridge writes.
type TargetOverview struct {
	Registry, Listen, Kind string
	Connection             Connection
	bridge.Status          // without lists; see bridge.Loop.Summary
}

// Connection is the state of the connection to a registry.
type Connection struct {
	Up          bool
	LastContact time.Time // zero: never
	Reconnects  int       // connections after the first
}

// Replicas is the state of this replica among the replicas of its owner.
type Replicas struct {
	Identity  string     `json:"identity"` // of this replica
	Members   []string   `json:"members"`  // identities of all replicas that run
	Expected  int        `json:"expected"` // how many replicas should run
	Lost      int        `json:"lost"`     // how often this replica lost a lease while it led
	Ready     bool       `json:"ready"`    // this replica is ready for every target
	Elections []Election `json:"elections"`
	LastError string     `json:"last_error,omitempty"` // why a lease record is unreachable
}

// Election is the leadership of one target.
type Election struct {
	Target string      `json:"target"`
	Role   bridge.Role `json:"role"`             // of this replica
	Leader string      `json:"leader,omitempty"` // empty: no leader is known
	Term   int64       `json:"term"`             // increases with each new leader
	Until  time.Time   `json:"until,omitzero"`   // when the leader must have renewed its lease to continue to write
	Ready  bool        `json:"ready"`            // this replica has read everything, and written it if it leads
}

// Source is one registry that the bridge reads.
type Source struct {
	Name      string            `json:"name"` // in the configuration
	Kind      string            `json:"kind"` // mesh, zookeeper, nacos, kubernetes
	Synced    bool              `json:"synced"`
	Stale     string            `json:"stale,omitempty"`   // why its services may be out of date
	Unknown   map[string]string `json:"unknown,omitempty"` // why, by each scope that cannot be read
	Services  int               `json:"services"`
	Endpoints map[string]int    `json:"endpoints"` // by health
	Skipped   []Skipped         `json:"skipped"`   // inputs that were left out, by name
	SourceState
}

// SourceState is the state that only the source itself knows. The other fields of Source
// are read from its table.
type SourceState struct {
	Connected   bool      `json:"connected"`
	Mode        string    `json:"mode,omitempty"` // how it reads, such as delta or sotw
	LastError   string    `json:"last_error,omitempty"`
	LastContact time.Time `json:"last_contact,omitzero"`

	// Heard is when a connected registry last answered. It is zero for a client that checks
	// its connection every few seconds.
	Heard time.Time `json:"-"`

	Reconnects int       `json:"reconnects"`
	Types      []Type    `json:"types,omitempty"` // of an xDS stream
	Replicas   []Replica `json:"replicas,omitempty"`
	Mapping    *Mapping  `json:"mapping,omitempty"` // only of a mesh
}

// TargetStatus is one registry that the bridge writes.
type TargetStatus struct {
	Name string `json:"name"` // such as zk, or mesh (:15031)
	Kind string `json:"kind"` // mesh, zookeeper, nacos, kubernetes
	TargetState
}

// ReadBy returns who reads a served target, as status prints it.
func (t TargetStatus) ReadBy() string {
	if len(t.Readers) == 0 {
		return "no reader: " + cmp.Or(t.LastError, noReader)
	}
	names := make([]string, 0, len(t.Readers))
	for _, r := range t.Readers {
		name := r.Address
		if r.Refused != "" {
			name += " (rejects " + r.Refused + ")"
		}
		names = append(names, name)
	}
	return fmt.Sprintf("read by %d: %s", len(t.Readers), strings.Join(names, ", "))
}

// noReader is why a mesh may have no reader, with the setting that adds one.
const noReader = "add this address to configSources of an istiod"

// TargetState is the state that only the target itself knows.
type TargetState struct {
	Connected bool      `json:"connected"`
	Server    string    `json:"server,omitempty"`
	Since     time.Time `json:"since,omitzero"` // when it was connected or disconnected

	// Heard is when a connected registry last answered. It is zero for a client that checks
	// its connection every few seconds.
	Heard time.Time `json:"-"`

	Reconnects int      `json:"reconnects"`
	LastError  string   `json:"last_error,omitempty"` // why it is not connected, or another problem
	Unwatched  string   `json:"unwatched,omitempty"`  // why changes of others are seen only at the next read
	Unrecorded string   `json:"unrecorded,omitempty"` // why the records that a restart needs are not stored
	Login      *Login   `json:"login,omitempty"`
	Readers    []Reader `json:"readers,omitempty"` // of a served target

	// RefusedRules are the rules of import.rulesFile that data planes do not follow, with
	// the reason.
	RefusedRules []string `json:"refused_rules,omitempty"`

	// Refused is why nothing may be written there until an operator changes something.
	Refused string `json:"-"`
}

// Reader is a client that reads a served target, such as an istiod.
type Reader struct {
	Node    string    `json:"node"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Sent    string    `json:"sent,omitempty"`  // version of the last set that was sent
	Acked   string    `json:"acked,omitempty"` // version of the last set that the client acknowledged

	DataPlane bool   `json:"data_plane,omitempty"` // the client is a data plane, not an istiod
	Refused   string `json:"refused,omitempty"`    // type and reason of what a data plane rejected
}

// Login is the state of the login of a configured user at a registry.
type Login struct {
	Username  string    `json:"username"`
	Expires   time.Time `json:"expires,omitzero"` // of the token, which is renewed before
	LastError string    `json:"last_error,omitempty"`
}

// Type is the state of one resource type of an xDS stream.
type Type struct {
	Type      string `json:"type"` // the last part of the type URL, such as Cluster
	Version   string `json:"version,omitempty"`
	Nonce     string `json:"nonce,omitempty"` // last received on this stream
	Resources int    `json:"resources"`       // in the cache
	Unknown   int    `json:"unknown"`         // requested but not received
	Responses int    `json:"responses"`       // received since the start
	Nacks     int    `json:"nacks"`           // sent since the start
	LastError string `json:"last_error,omitempty"`
}

// Replica is one server of a source, such as one of several istiods.
type Replica struct {
	Address   string    `json:"address"`
	OK        bool      `json:"ok"`
	LastRead  time.Time `json:"last_read,omitzero"`
	LastError string    `json:"last_error,omitempty"`
	Clients   int       `json:"clients"`            // clients that it serves
	Unlisted  bool      `json:"unlisted,omitempty"` // istiod no longer lists it; it is read while it answers
}

// Mapping is the state of the interface mapping: which service key is at which host
// address.
type Mapping struct {
	From      string    `json:"from"`     // how it is read, such as debug-http
	Complete  bool      `json:"complete"` // every replica answered once
	Keys      int       `json:"keys"`
	LastRead  time.Time `json:"last_read,omitzero"` // when all replicas were last read
	LastError string    `json:"last_error,omitempty"`
	Conflicts int       `json:"conflicts"`

	// Until is when the clients of a restarted istiod should have reconnected.
	Until time.Time `json:"until,omitzero"`

	// Waiting counts the keys of disconnected clients. They remain until the clients could
	// have reconnected.
	Waiting int `json:"waiting"`
}

// Skipped is an input that was left out on purpose.
type Skipped struct {
	Input  string `json:"input"`
	Reason string `json:"reason"`
}

// Service is one service of one bridge, as GET /api/v1/services lists it.
type Service struct {
	Target string `json:"target"`
	Owner  string `json:"owner"`
	bridge.ServiceStatus
}

// Page is a part of a list. Continue is the value of ?continue= for the next page. It is
// empty on the last page.
type Page[T any] struct {
	Items    []T    `json:"items"`
	Total    int    `json:"total"`
	Continue string `json:"continue,omitempty"`
}

// Why is everything that is known of one service: what each source reports, and its
// state in each target.
type Why struct {
	Query string `json:"query"`

	// Conditions are those of the sources that report the service and of its targets, or of
	// all sources and targets if those are not known.
	Conditions []Condition `json:"conditions"`

	Sources   []Seen     `json:"sources"`
	Services  []Service  `json:"services"`
	Holds     []Hold     `json:"holds"`
	Conflicts []Conflict `json:"conflicts"`
	Kept      []Kept     `json:"kept,omitempty"` // unclaimed entries of this owner in its groups
	Skipped   []Skipped  `json:"skipped"`
	Events    []Event    `json:"events"` // of the service, its groups and its holds, the oldest first
}

// Kept is a bridge.Kept and its target.
type Kept struct {
	Target string `json:"target"`
	bridge.Kept
}

// Seen is a service as a source reports it.
type Seen struct {
	Source     string              `json:"source"`
	Service    registry.Name       `json:"service"`
	Keys       []string            `json:"keys"` // its service keys, with the category providers
	Unknown    string              `json:"unknown,omitempty"`
	Attributes registry.Attributes `json:"attributes,omitempty"`
	Endpoints  []Endpoint          `json:"endpoints"`
}

// Endpoint is one endpoint of a service as a source reports it.
type Endpoint struct {
	Address    string              `json:"address"`
	Health     string              `json:"health"`
	Offered    bool                `json:"offered"`
	Protocol   string              `json:"protocol,omitempty"`
	Weight     uint32              `json:"weight,omitempty"`
	Zone       string              `json:"zone,omitempty"`
	Attributes registry.Attributes `json:"attributes,omitempty"`
	Keys       []string            `json:"keys,omitempty"` // if it provides only some keys of its service
}

// Hold is a bridge.Hold and its target.
type Hold struct {
	Target string `json:"target"`
	bridge.Hold
}

// Conflict is a bridge.Conflict and its target.
type Conflict struct {
	Target string `json:"target"`
	bridge.Conflict
}

// Decision is the answer to the approval or denial of a hold.
type Decision struct {
	ID       string `json:"id"`
	Target   string `json:"target"`
	Bridge   string `json:"bridge"`
	Count    int    `json:"count"`             // deletions of the hold
	Result   string `json:"result"`            // approved or denied
	Recorded bool   `json:"recorded"`          // where other replicas and the next process read it
	Why      string `json:"why_not,omitempty"` // why the decision is not recorded
}

// Problem is the answer to a request that fails.
type Problem struct {
	Error string `json:"error"`
}
