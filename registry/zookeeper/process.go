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

// An aliveProcess is the content of the node alive, about the process that created
// it. The process counts as running as long as the node's session, unless the
// system on which both run knows better.
type aliveProcess struct {
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

// parseAlive decodes the content of the node; the zero value if it cannot be decoded.
func parseAlive(data []byte) aliveProcess {
	var r aliveProcess
	_ = json.Unmarshal(data, &r) // as documented
	return r
}

// ended reports whether the process is known to have ended, so that its node only
// waits for its session to end, or is this process. A host name and a number are
// not enough to know: in each container there is a process 1, and a host name
// may be that of a whole node.
func (r aliveProcess) ended() bool {
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
