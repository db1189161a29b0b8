package preflight

import "fmt"

// An Outcome is the result of one check.
type Outcome string

// The outcomes of a check.
const (
	Passed Outcome = "ok"
	Warned Outcome = "warning"
	Failed Outcome = "failed"
	Info   Outcome = "info" // of what is not configured
)

// A Role is what a registry is to the bridges that are checked.
type Role string

// The roles of a registry.
const (
	RoleSource   Role = "source"
	RoleTarget   Role = "target"
	RoleRegistry Role = "registry" // in either direction
	RoleProcess  Role = "process"  // none: it is about what the process itself writes
)

// A Finding is what one check found.
type Finding struct {
	Registry string  `json:"registry"`
	Role     Role    `json:"role"`
	Check    string  `json:"check"`
	Outcome  Outcome `json:"outcome"`
	Detail   string  `json:"detail,omitempty"`
	Fix      string  `json:"fix,omitempty"` // what to do; empty if nothing has to be

	Unreachable bool `json:"-"` // the registry could not be reached
}

// Findings gathers the checks of one registry in one role.
type Findings struct {
	registry string
	role     Role
	found    []Finding
}

// Pass reports a check that passed, and what it saw.
func (f *Findings) Pass(check, format string, args ...any) {
	f.add(Finding{Check: check, Outcome: Passed, Detail: fmt.Sprintf(format, args...)})
}

// Warn reports what may not be meant; fix is empty if nothing has to be done.
func (f *Findings) Warn(check, detail, fix string) {
	f.add(Finding{Check: check, Outcome: Warned, Detail: detail, Fix: fix})
}

// Fail reports why a check failed, and what to do.
func (f *Findings) Fail(check string, err error, fix string) {
	f.add(Finding{Check: check, Outcome: Failed, Detail: err.Error(), Fix: fix})
}

// Inform reports what another configuration could do.
func (f *Findings) Inform(check, detail, fix string) {
	f.add(Finding{Check: check, Outcome: Info, Detail: detail, Fix: fix})
}

func (f *Findings) add(one Finding) {
	one.Registry, one.Role = f.registry, f.role
	f.found = append(f.found, one)
}

// Merge adds what others gathered.
func (f *Findings) Merge(others Findings) {
	for _, one := range others.found {
		f.add(one)
	}
}

// Unreachable is Fail for a registry that is unreachable.
func (f *Findings) Unreachable(check string, err error, fix string) {
	f.Fail(check, err, Remedy(err, fix))
	f.found[len(f.found)-1].Unreachable = true
}
