package admin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Document is the answer of GET /api/v1/status, and what the command status prints as
// JSON. Its names are stable: they are only ever added to.
type Document struct {
	Version    string          `json:"version"`
	Owner      string          `json:"owner"`
	Started    time.Time       `json:"started"`
	Time       time.Time       `json:"time"`    // when the document was made
	Ready      bool            `json:"ready"`   // every source reported everything once, every target was listed
	InSync     bool            `json:"in_sync"` // there is no condition, but such as end by themselves
	Conditions []Condition     `json:"conditions"`
	Sources    []Source        `json:"sources"`
	Targets    []TargetStatus  `json:"targets"` // how they are connected; what is done there is in Loops
	Loops      []bridge.Status `json:"loops"`
	Replicas   *Replicas       `json:"replicas,omitempty"` // if several share the work
	Reload     *Reload         `json:"reload,omitempty"`   // how the last reload went; nil before the first
}

// Overview is the state of sources and loops, in numbers alone.
type Overview struct {
	Time       time.Time
	Owner      string
	Version    string
	Sources    []SourceOverview
	Targets    []TargetOverview
	Replicas   *Replicas // nil if this is the only one
	Conditions []Condition
}

// SourceOverview is one registry that the bridge reads.
type SourceOverview struct {
	Name, Kind string
	Connection Connection
	registry.Summary
	Mapping *Mapping // of a mesh
}

// TargetOverview is one target that the bridge writes to.
type TargetOverview struct {
	Registry, Listen, Kind string
	Connection             Connection
	bridge.Status          // without lists, see bridge.Loop.Summary
}

// Connection is how a registry is connected.
type Connection struct {
	Up          bool
	LastContact time.Time // zero: it never was
	Reconnects  int       // connections after the first
}

// Replicas is the state of this process among those of its owner.
type Replicas struct {
	Identity  string     `json:"identity"` // of this one
	Members   []string   `json:"members"`  // of all
	Expected  int        `json:"expected"` // how many there should be
	Lost      int        `json:"lost"`     // times that it could not renew a lease while it led
	Ready     bool       `json:"ready"`    // it is ready for every target
	Elections []Election `json:"elections"`
	LastError string     `json:"last_error,omitempty"` // why a lease is out of reach
}

// Election is who leads one target.
type Election struct {
	Target string      `json:"target"`
	Role   bridge.Role `json:"role"`             // of this replica
	Leader string      `json:"leader,omitempty"` // empty: nobody is known to lead
	Term   int64       `json:"term"`             // rises with each leader
	Until  time.Time   `json:"until,omitzero"`   // until when this leader may write without renewing its lease
	Ready  bool        `json:"ready"`            // this replica has read everything, or written it where it leads
}

// Source is one registry that the bridge reads.
type Source struct {
	Name      string            `json:"name"` // as the configuration calls it
	Kind      string            `json:"kind"` // mesh, zookeeper, nacos, kubernetes
	Synced    bool              `json:"synced"`
	Stale     string            `json:"stale,omitempty"`   // why its rows may be out of date
	Unknown   map[string]string `json:"unknown,omitempty"` // scopes that cannot be known, with the reason
	Services  int               `json:"services"`
	Endpoints map[string]int    `json:"endpoints"` // by health
	Skipped   []Skipped         `json:"skipped"`   // inputs that were left out, by name
	SourceState
}

// SourceState is what only a source itself can say; the rest of Source is
// read from its table.
type SourceState struct {
	Connected   bool      `json:"connected"`
	Mode        string    `json:"mode,omitempty"` // how it reads, such as delta or sotw
	LastError   string    `json:"last_error,omitempty"`
	LastContact time.Time `json:"last_contact,omitzero"` // when its registry was last heard
	Heard       time.Time `json:"-"`                     // the same while it is connected; zero: its client makes sure of that every few seconds
	Reconnects  int       `json:"reconnects"`
	Types       []Type    `json:"types,omitempty"` // of an xDS stream
	Replicas    []Replica `json:"replicas,omitempty"`
	Mapping     *Mapping  `json:"mapping,omitempty"` // of a mesh
}

// TargetStatus is one registry that the bridge writes to.
type TargetStatus struct {
	Name string `json:"name"` // as in zk, or in mesh (:15031)
	Kind string `json:"kind"` // mesh, zookeeper, nacos, kubernetes
	TargetState
}

// ReadBy says who reads a target that serves.
func (t TargetStatus) ReadBy() string {
	if len(t.Readers) == 0 {
		return "read by nobody: " + cmp.Or(t.LastError, "configSources of an istiod has to name this address")
	}
	names := make([]string, 0, len(t.Readers))
	for _, r := range t.Readers {
		name := r.Address
		if r.Refused != "" {
			name += " (refuses " + r.Refused + ")"
		}
		names = append(names, name)
	}
	return fmt.Sprintf("read by %d: %s", len(t.Readers), strings.Join(names, ", "))
}

// TargetState is what only a target itself can say.
type TargetState struct {
	Connected  bool      `json:"connected"`
	Server     string    `json:"server,omitempty"`
	Since      time.Time `json:"since,omitzero"` // when it was connected, or the connection was lost
	Heard      time.Time `json:"-"`              // when it last answered, while it is connected; zero: its client makes sure of that every few seconds
	Reconnects int       `json:"reconnects"`
	LastError  string    `json:"last_error,omitempty"` // why it is not connected, or what else is wrong
	Unwatched  string    `json:"unwatched,omitempty"`  // why what others change is not seen before it is read again
	Unrecorded string    `json:"unrecorded,omitempty"` // why what a restart has to know is not stored
	Login      *Login    `json:"login,omitempty"`
	Readers    []Reader  `json:"readers,omitempty"` // of a target that serves

	RefusedRules []string `json:"refused_rules,omitempty"` // those of import.rulesFile that data planes do not follow
	Refused      string   `json:"-"`                       // why it may not be written to at all, which is for a person to change
}

// Reader is who reads a target that serves, such as an istiod.
type Reader struct {
	Node    string    `json:"node"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Sent    string    `json:"sent,omitempty"`  // version of the set it was sent last
	Acked   string    `json:"acked,omitempty"` // and of the one it confirmed

	DataPlane bool   `json:"data_plane,omitempty"` // it is no istiod
	Refused   string `json:"refused,omitempty"`    // type and reason of what a data plane refused
}

// Login is how a user of ours is logged in at a registry.
type Login struct {
	Username  string    `json:"username"`
	Expires   time.Time `json:"expires,omitzero"` // the token; it is renewed before
	LastError string    `json:"last_error,omitempty"`
}

// Type is the state of one resource type of an xDS stream.
type Type struct {
	Type      string `json:"type"` // the last part of the type URL, such as Cluster
	Version   string `json:"version,omitempty"`
	Nonce     string `json:"nonce,omitempty"` // last received on this stream
	Resources int    `json:"resources"`       // held
	Unknown   int    `json:"unknown"`         // asked and not answered
	Responses int    `json:"responses"`       // received since the start
	Nacks     int    `json:"nacks"`           // sent since the start
	LastError string `json:"last_error,omitempty"`
}

// Replica is one server of a source, as istiod may have several.
type Replica struct {
	Address   string    `json:"address"`
	OK        bool      `json:"ok"`
	LastRead  time.Time `json:"last_read,omitzero"`
	LastError string    `json:"last_error,omitempty"`
	Clients   int       `json:"clients"`            // how many it serves
	Unlisted  bool      `json:"unlisted,omitempty"` // istiod lists it no more, and it is read on while it answers
}

// Mapping is how far the interface mapping is known: which service key is
// at which host address.
type Mapping struct {
	From      string    `json:"from"`     // how it is read, such as debug-http
	Complete  bool      `json:"complete"` // every replica answered once
	Keys      int       `json:"keys"`
	LastRead  time.Time `json:"last_read,omitzero"` // when a whole reading last succeeded
	LastError string    `json:"last_error,omitempty"`
	Conflicts int       `json:"conflicts"`
	Until     time.Time `json:"until,omitzero"` // when clients of an istiod that came up lately will have come back
	Waiting   int       `json:"waiting"`        // claims of clients that went, which stay until these could have come back
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

// Page is a part of a list. Continue is given back as ?continue= to get the
// next one; it is empty on the last.
type Page[T any] struct {
	Items    []T    `json:"items"`
	Total    int    `json:"total"`
	Continue string `json:"continue,omitempty"`
}

// Why is everything that is known of one service: what each source reports, and its
// state in each target.
type Why struct {
	Query      string      `json:"query"`
	Conditions []Condition `json:"conditions"` // of the sources that report it and the targets it goes to; of all if it is not known which
	Sources    []Seen      `json:"sources"`
	Services   []Service   `json:"services"`
	Holds      []Hold      `json:"holds"`
	Conflicts  []Conflict  `json:"conflicts"`
	Kept       []Kept      `json:"kept,omitempty"` // entries of ours in its groups that no bridge writes now
	Skipped    []Skipped   `json:"skipped"`
	Events     []Event     `json:"events"` // of the service, its groups and its holds, the oldest first
}

// Kept is bridge.Kept of one target.
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
	Keys       []string            `json:"keys,omitempty"` // if it provides only some of its service's
}

// Hold is a bridge.Hold and the target that it holds back.
type Hold struct {
	Target string `json:"target"`
	bridge.Hold
}

// Conflict is a bridge.Conflict and the target that it is in.
type Conflict struct {
	Target string `json:"target"`
	bridge.Conflict
}

// Decision is the answer to the approval or denial of a hold.
type Decision struct {
	ID       string `json:"id"`
	Target   string `json:"target"`
	Bridge   string `json:"bridge"`
	Count    int    `json:"count"`             // of the deletions decided about
	Result   string `json:"result"`            // approved or denied
	Recorded bool   `json:"recorded"`          // where other replicas and a restart look
	Why      string `json:"why_not,omitempty"` // it is not recorded
}

// Problem is the answer if something is wrong.
type Problem struct {
	Error string `json:"error"`
}
