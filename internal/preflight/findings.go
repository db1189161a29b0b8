package preflight

import "fmt"

// An Outcome is the result of one check.
type Outcome string

// The outcomes of a check.
const (
	Passed Outcome = "ok"
	Warned Outcome = "warning"
	Failed Outcome = "failed"
	Info   Outcome = "info" // about an alternative that is not configured
)

// A Role is the role of a registry in the bridges that are checked.
type Role string

// The roles of a registry.
const (
	RoleSource   Role = "source"
	RoleTarget   Role = "target"
	RoleRegistry Role = "registry" // as a source and as a target
	RoleProcess  Role = "process"  // not a registry: the files of the process
)

// A Finding is what one check found.
type Finding struct {
	Registry string  `json:"registry"`
	Role     Role    `json:"role"`
	Check    string  `json:"check"`
	Outcome  Outcome `json:"outcome"`
	Detail   string  `json:"detail,omitempty"`
	Fix      string  `json:"fix,omitempty"` // what to do; empty: nothing

	Unreachable bool `json:"-"` // the registry could not be reached
}

// Findings collects the findings of one check. Only the goroutine of the check may use it.
type Findings struct {
	registry string
	role     Role
	found    []Finding
}

// Pass adds the result of a check that passed.
func (f *Findings) Pass(check, format string, args ...any) {
	f.add(Finding{Check: check, Outcome: Passed, Detail: fmt.Sprintf(format, args...)})
}

// Warn adds a warning. The fix is empty if nothing has to be done.
func (f *Findings) Warn(check, detail, fix string) {
	f.add(Finding{Check: check, Outcome: Warned, Detail: detail, Fix: fix})
}

// Fail adds the error of a check that failed, and what to do.
func (f *Findings) Fail(check string, err error, fix string) {
	f.add(Finding{Check: check, Outcome: Failed, Detail: err.Error(), Fix: fix})
}

// Inform adds a note about another possible configuration.
func (f *Findings) Inform(check, detail, fix string) {
	f.add(Finding{Check: check, Outcome: Info, Detail: detail, Fix: fix})
}

func (f *Findings) add(one Finding) {
	one.Registry, one.Role = f.registry, f.role
	f.found = append(f.found, one)
}

// Merge adds all findings of another collection.
func (f *Findings) Merge(others Findings) {
	for _, one := range others.found {
		f.add(one)
	}
}

// Unreachable is Fail for a registry that cannot be reached. It adds the remedy for the
// cause to the fix.
func (f *Findings) Unreachable(check string, err error, fix string) {
	f.Fail(check, err, Remedy(err, fix))
	f.found[len(f.found)-1].Unreachable = true
}
