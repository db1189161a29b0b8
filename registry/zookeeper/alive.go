package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

const (
	// aliveInterval is the time after which KeepAlive checks its node. A second bridge
	// of the owner creates its own within it.
	aliveInterval = 10 * time.Second

	// returnTime is the time within which a running process creates its node anew after
	// its session was lost, and a replica after the one whose node showed all of them.
	returnTime = 2 * aliveInterval
)

// presence shows other processes that this one writes as an owner, and finds
// another one that does.
type presence struct {
	home *home
	opts *TargetOptions

	// Only the goroutine that asks for admission touches these.
	seen   time.Time // since when another process is alive; zero: none was
	missed time.Time // since when the one that was found is not alive; zero: it is, or none was found
	found  bool      // another process, which may come back after it lost its session

	mu     sync.Mutex
	hidden error
}

// KeepAlive keeps the ephemeral node that shows that a bridge of the owner runs,
// until ctx ends; the node goes with the client's session. A failure is logged
// once, and Hidden returns one that is a refusal.
func (p *presence) KeepAlive(ctx context.Context) {
	client := p.home.client
	lost, stop := client.onLost()
	defer stop()
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	failed := false
	for {
		err := client.createAll(ctx, p.home.request(aliveNode, p.record(), zk.FlagEphemeral))
		if err != nil && !failed && ctx.Err() == nil {
			p.opts.Log.Warn("cannot show other processes that this bridge runs", "err", err)
		}
		failed = err != nil
		p.setHidden(err)
		select {
		case <-ctx.Done():
			return
		case <-lost:
		case <-ticker.C:
		}
	}
}

// Hidden returns why another bridge of the owner cannot see that this one runs, and
// would write as well; nil unless the node was refused.
func (p *presence) Hidden() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden
}

// setHidden records a refusal. An error of the connection ends with it, and the
// state of the client shows it.
func (p *presence) setHidden(err error) {
	if !errors.Is(err, registry.ErrRefused) {
		err = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hidden = err
}

// findOther reports whether to wait until another process has ended. It returns
// ErrDuplicateProcess if that is alive for longer than the session of a killed one.
func (p *presence) findOther(ctx context.Context) (wait bool, err error) {
	n, err := p.home.client.read(ctx, p.home.node(aliveNode))
	if err != nil {
		return false, err
	}
	if n.stat == nil {
		return p.awaitReturn(ctx)
	}
	other, state := parseAlive(n.data), p.home.client.State()
	if p.isOurs(n.stat.EphemeralOwner, state.Session) || other.ended() || p.opts.Shared && other.Writes != alone {
		return false, nil
	}
	now, patience := time.Now(), max(other.Timeout, state.Timeout)+aliveInterval/2
	p.missed = time.Time{}
	if p.seen.IsZero() {
		p.seen = now
		p.opts.Log.Info("another bridge of this owner may be running; nothing is written before its liveness node goes",
			"host", other.Host, "process", other.Process, "patience", patience)
	}
	// A server that replaces another gives every session its whole timeout
	// again, and closes our connection.
	if now.Sub(p.seen) < patience || now.Sub(state.Since) < patience {
		return true, nil
	}
	p.found = true
	return false, fmt.Errorf("%w: owner %q is alive on host %q as process %d; %s",
		ErrDuplicateProcess, p.opts.Owner, other.Host, other.Process, p.remedy(other))
}

// awaitReturn reports whether to wait though no other process is alive: one that was found
// may have lost its session.
func (p *presence) awaitReturn(ctx context.Context) (wait bool, err error) {
	if err := p.findReplicas(ctx); err != nil {
		return false, err
	}
	if p.found && p.missed.IsZero() {
		p.missed = time.Now()
	}
	return p.found && time.Since(p.missed) < returnTime, nil
}

func (p *presence) isOurs(session, current int64) bool {
	return session == current || p.opts.Ours != nil && p.opts.Ours(session)
}

// remedy returns what a person does about another process of the owner.
func (p *presence) remedy(other aliveRecord) string {
	switch {
	case p.opts.Shared:
		return "it runs without replicas.lease: end it, and start it again with the lease"
	case other.Writes == shared:
		return "it runs with replicas.lease: end all replicas first, or give this one the same lease"
	default:
		return "stop that one, or give this one another owner"
	}
}

// findReplicas makes a process without a lease wait if replicas wrote last: the
// next of them may be about to create its node. Once they are gone it deletes
// their fence, so that writes of theirs that are in flight fail.
func (p *presence) findReplicas(ctx context.Context) error {
	if p.opts.Shared {
		return nil
	}
	exists, err := p.home.exists(ctx, fenceNode)
	if err != nil || !exists {
		return err
	}
	p.found = true
	if p.missed.IsZero() || time.Since(p.missed) < returnTime {
		return nil
	}
	return p.home.client.deleteTree(ctx, p.home.node(fenceNode))
}

// An aliveRecord is the content of the node alive, about the process that created
// it. The process counts as running as long as the node's session, unless the
// system on which both run knows better.
type aliveRecord struct {
	Host    string        `json:"host"`
	Process int           `json:"process"`
	System  string        `json:"system,omitempty"`  // in which Process is a number: a boot and a PID namespace; empty: unknown
	Started string        `json:"started,omitempty"` // when the process began, as its system counts; empty: unknown
	Timeout time.Duration `json:"timeout"`           // of its session, after which the node goes if the process was killed
	Writes  writers       `json:"writes,omitempty"`  // empty: unknown, by an older version
}

// writers says whether other processes may write as the owner too.
type writers string

const (
	alone  writers = "alone"
	shared writers = "shared" // under leases
)

func (p *presence) record() string {
	host, _ := os.Hostname() // without it the process cannot be found by a person
	pid := os.Getpid()
	r := aliveRecord{
		Host: host, Process: pid, System: system(), Started: started(pid),
		Timeout: p.home.client.State().Timeout, Writes: alone,
	}
	if p.opts.Shared {
		r.Writes = shared
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // of strings and numbers alone
	}
	return string(data)
}

// parseAlive decodes the content of the node; the zero value if it cannot be decoded.
func parseAlive(data []byte) aliveRecord {
	var r aliveRecord
	_ = json.Unmarshal(data, &r) // as documented
	return r
}

// ended reports whether the process is known to have ended, so that its node only
// waits for its session to end, or is this process. A host name and a number are
// not enough to know: in each container there is a process 1, and a host name
// may be that of a whole node.
func (r aliveRecord) ended() bool {
	host, err := os.Hostname()
	if err != nil || r.Host != host || r.Process <= 0 || r.Started == "" || r.System == "" || r.System != system() {
		return false
	}
	p, err := os.FindProcess(r.Process)
	if err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return true
	}
	now := started(r.Process)
	return r.Process == os.Getpid() || now != "" && now != r.Started
}

// system names the boot and the PID namespace of this process; empty if unknown.
func system() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// started returns when a process began, in ticks since the boot: field 22 of
// /proc/<pid>/stat (proc(5)); empty if that cannot be read.
func started(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // the name before it may hold anything
	const field = 22 - 3
	if len(fields) <= field {
		return ""
	}
	return fields[field]
}

// owners reads and deletes what the registry remembers of owners.
type owners struct{ client *Client }

// Owners returns the owners whose bridges wrote to the registry, or read from it.
func (o owners) Owners(ctx context.Context) ([]string, error) {
	names, err := o.client.list(ctx, homeRoot)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		if owner, err := url.PathUnescape(name); err == nil && homeRoot+"/"+name != IDNode {
			all = append(all, owner)
		}
	}
	slices.Sort(all)
	return all, nil
}

// ownerNames are the names of the owners whose bridges wrote to the registry, or read from
// it, by their marks. They are read with each list of the groups, as far as they may be.
type ownerNames struct {
	owners

	mu     sync.Mutex
	byMark map[string]string
}

func (n *ownerNames) refresh(ctx context.Context) {
	names, err := n.Owners(ctx)
	if err != nil {
		return // those that were read before stay known
	}
	byMark := make(map[string]string, len(names))
	for _, name := range names {
		byMark[metadata.OwnerMark(name)] = name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byMark = byMark
}

// OwnerName returns the name of the owner of a mark; empty if it is not known.
func (t *Target) OwnerName(mark string) string {
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	return t.names.byMark[mark]
}

// Alive names the process that runs as an owner, empty for none.
func (o owners) Alive(ctx context.Context, owner string) (string, error) {
	n, err := o.client.read(ctx, homePath(owner)+"/"+aliveNode)
	r := parseAlive(n.data)
	if err != nil || n.stat == nil || r.ended() {
		return "", err
	}
	return fmt.Sprintf("process %d on host %q", r.Process, r.Host), nil
}

// Forget deletes bridges from what the registry remembers of an owner, and all that
// it keeps for the owner if none is left. Entries stay.
func (o owners) Forget(ctx context.Context, owner string, bridges []string) error {
	path := homePath(owner) + "/" + bridgesNode
	n, err := o.client.read(ctx, path)
	if err != nil {
		return err
	}
	var rest []string
	for line := range strings.Lines(string(n.data)) {
		if !slices.Contains(bridges, strings.TrimSpace(line)) {
			rest = append(rest, line)
		}
	}
	if len(rest) == 0 {
		return o.client.deleteTree(ctx, homePath(owner))
	}
	err = o.client.do(ctx, &zk.SetDataRequest{Path: path, Data: []byte(strings.Join(rest, "")), Version: n.stat.Version})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
