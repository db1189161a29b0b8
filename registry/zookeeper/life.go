package zookeeper

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// life is what the ephemeral node alive says of the process that made it. The
// process lives as long as the node's session, unless the system on which both
// run knows better.
type life struct {
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

func (t *Target) life() string {
	host, _ := os.Hostname() // nobody is found by it then
	pid := os.Getpid()
	data, err := json.Marshal(life{
		Host: host, Process: pid, System: system(), Started: started(pid),
		Timeout: t.client.State().Timeout, Writes: t.writers(),
	})
	if err != nil {
		panic(err) // of strings and numbers alone
	}
	return string(data)
}

// parseLife reads a sign of life. One that cannot be read may be anybody's.
func parseLife(data []byte) life {
	var l life
	_ = json.Unmarshal(data, &l) // as said
	return l
}

// ended reports whether a sign of life is but what is left of a process that is
// known to have ended, or is this process's own. A host name and a number are
// not enough to know: in each container there is a process 1, and a host name
// may be that of a whole node.
func (l life) ended() bool {
	host, err := os.Hostname()
	if err != nil || l.Host != host || l.Process <= 0 || l.Started == "" || l.System == "" || l.System != system() {
		return false
	}
	p, err := os.FindProcess(l.Process)
	if err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return true
	}
	now := started(l.Process)
	return l.Process == os.Getpid() || now != "" && now != l.Started
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
