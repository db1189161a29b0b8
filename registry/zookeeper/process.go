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

// An aliveProcess is the content of the node alive: the process that created the node. It
// counts as running as long as the session of the node, unless this process runs on the
// same system and knows that it ended.
type aliveProcess struct {
	Host    string `json:"host"`
	Process int    `json:"process"`

	// System is the boot and the PID namespace in which Process is a number, and Started
	// is the start of the process in the system's unit; empty: unknown.
	System  string `json:"system,omitempty"`
	Started string `json:"started,omitempty"`

	// Timeout is that of the session. If the process is killed, the node is deleted after
	// this time.
	Timeout time.Duration `json:"timeout"`

	Writes writers `json:"writes,omitempty"` // empty: unknown, by an older version
}

// writers says whether other processes may write as the owner as well.
type writers string

const (
	alone  writers = "alone"
	shared writers = "shared" // under leases
)

// parseAlive decodes the content of the node alive. It returns the zero value if the
// content is invalid.
func parseAlive(data []byte) aliveProcess {
	var r aliveProcess
	_ = json.Unmarshal(data, &r) // as documented
	return r
}

// ended reports whether the process is this process, or is known to have ended, so that
// only its session keeps the node. A host name and a process number are no proof: each
// container has a process 1, and containers may have the host name of their node.
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

// system returns the boot and the PID namespace of this process; empty if unknown.
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

// started returns the start of a process in ticks since the boot, which is field 22 of
// /proc/<pid>/stat (proc(5)). It returns an empty string if that cannot be read.
func started(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	text := string(stat)
	// The name of the process, in parentheses before, may contain any character.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const field = 22 - 3
	if len(fields) <= field {
		return ""
	}
	return fields[field]
}
