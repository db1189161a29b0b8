package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

// aliveInterval is how often KeepAlive looks after its node. A second bridge
// of the owner takes over within it.
const aliveInterval = 10 * time.Second

// KeepAlive keeps the ephemeral node that shows that a bridge of the owner
// lives, until ctx ends; the node goes with the client's session. What it
// cannot write it logs once, and Hidden reports that it is refused.
func (t *Target) KeepAlive(ctx context.Context) {
	lost, stop := t.client.onLost()
	defer stop()
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	failed := false
	for {
		err := t.client.make(ctx, t.own("alive", t.aliveText(), zk.FlagEphemeral))
		if err != nil && !failed && ctx.Err() == nil {
			t.opts.Log.Warn("cannot show that the bridge lives", "err", err)
		}
		failed = err != nil
		t.admission.hide(err)
		select {
		case <-ctx.Done():
			return
		case <-lost:
		case <-ticker.C:
		}
	}
}

// Hidden returns why another bridge of the owner does not see that this one
// lives, and so is not refused; nil while nobody refuses to show it.
func (t *Target) Hidden() error {
	t.admission.mu.Lock()
	defer t.admission.mu.Unlock()
	return t.admission.hidden
}

// An aliveRecord is the content of the ephemeral node alive, about the process that
// made it. The process counts as running as long as the node's session, unless the
// system on which both run knows better.
type aliveRecord struct {
	Host    string        `json:"host"`
	Process int           `json:"process"`
	System  string        `json:"system,omitempty"`  // in which the number of the process is one: a boot and a PID namespace; empty: unknown
	Started string        `json:"started,omitempty"` // when the process began, as its system counts; empty: unknown
	Timeout time.Duration `json:"timeout"`           // of its session, by which the node goes after a kill
	Writes  writers       `json:"writes,omitempty"`  // empty: a version that did not say
}

// writers says who else may write as the owner beside a process.
type writers string

const (
	alone  writers = "alone"  // nobody
	shared writers = "shared" // others under leases
)

func (t *Target) writers() writers {
	if t.opts.Shared {
		return shared
	}
	return alone
}

// aliveText returns the record of this process as the node holds it.
func (t *Target) aliveText() string {
	host, _ := os.Hostname() // nobody is found by it then
	pid := os.Getpid()
	data, err := json.Marshal(aliveRecord{
		Host: host, Process: pid, System: system(), Started: started(pid),
		Timeout: t.client.State().Timeout, Writes: t.writers(),
	})
	if err != nil {
		panic(err) // of strings and numbers alone
	}
	return string(data)
}

// parseAlive reads the content of such a node. One that cannot be read may be
// anybody's.
func parseAlive(data []byte) aliveRecord {
	var r aliveRecord
	_ = json.Unmarshal(data, &r) // as said
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

// system names the boot and the PID namespace of this process; empty where the
// system does not say.
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
// /proc/<pid>/stat (proc(5)); empty where that cannot be read.
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

// duplicate reports whether to wait for another process's sign of life to go, and
// returns ErrDuplicateProcess where it stayed for longer than what a killed one leaves.
func (t *Target) duplicate(ctx context.Context) (bool, error) {
	path := t.home() + "/alive"
	n, err := t.client.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		if err := t.replicas(ctx); err != nil {
			return false, err
		}
		return t.admission.missed(time.Now()), nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	other, state := parseAlive(n.data), t.client.State()
	if n.stat.EphemeralOwner == state.Session || t.ours(n.stat.EphemeralOwner) || other.ended() || t.opts.Shared && other.Writes != alone {
		return false, nil
	}
	now, patience := time.Now(), max(other.Timeout, state.Timeout)+aliveInterval/2
	t.admission.gone = time.Time{}
	if t.admission.duplicate.IsZero() {
		t.admission.duplicate = now
		t.opts.Log.Info("another bridge of this owner may be running; nothing is written before its sign of life goes",
			"host", other.Host, "process", other.Process, "patience", patience)
	}
	// A server that takes over from another gives every session its whole time
	// anew, and cuts our connection.
	if now.Sub(t.admission.duplicate) < patience || now.Sub(state.Since) < patience {
		return true, nil
	}
	t.admission.found = true
	return false, fmt.Errorf("%w: owner %q is alive on host %q as process %d; %s", ErrDuplicateProcess, t.opts.Owner, other.Host, other.Process, t.remedy(other))
}

// ours reports whether a session of another client is of this process.
func (t *Target) ours(session int64) bool { return t.opts.Ours != nil && t.opts.Ours(session) }

// remedy says what a person does about another process of the owner.
func (t *Target) remedy(other aliveRecord) string {
	switch {
	case t.opts.Shared:
		return "it runs without replicas.lease: end it, and start it again with the lease"
	case other.Writes == shared:
		return "it runs with replicas.lease: end all replicas first, or give this one the same lease"
	default:
		return "stop that one, or give this one another owner"
	}
}

// replicas makes a process without a lease wait where replicas wrote last: the
// next of them may be about to show that it lives. Once they are gone, so are
// their fence, under which whatever they may still send is refused.
func (t *Target) replicas(ctx context.Context) error {
	if t.opts.Shared {
		return nil
	}
	stat, err := t.client.exists(ctx, t.home()+"/fence")
	if err != nil || stat == nil {
		return err
	}
	t.admission.found = true
	if t.admission.gone.IsZero() || time.Since(t.admission.gone) < returns {
		return nil
	}
	return t.clear(ctx, t.home()+"/fence")
}

// returns is the time within which a process that lives shows so anew after
// its session was lost, and a replica after another that showed it for all.
const returns = 2 * aliveInterval

// missed reports whether to wait all the same though no sign of life is seen:
// a process that lives and lost its session makes its sign anew.
func (a *admission) missed(now time.Time) bool {
	if a.found && a.gone.IsZero() {
		a.gone = now
	}
	return a.found && now.Sub(a.gone) < returns
}

// Alive says who lives as an owner, empty where nobody does.
func (t *Target) Alive(ctx context.Context, owner string) (string, error) {
	path := homeOf(owner) + "/alive"
	n, err := t.client.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	l := parseAlive(n.data)
	if l.ended() {
		return "", nil
	}
	return fmt.Sprintf("process %d on host %q", l.Process, l.Host), nil
}
