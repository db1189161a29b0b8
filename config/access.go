package config

import (
	"slices"
	"strings"
)

// Access is what of a file says which bridge runs with it, and where that is
// asked.
type Access struct {
	Owner     string // empty where the file does not tell
	Admin     Admin
	Telemetry Telemetry
	Faults    Faults // of the whole file; without a path where nothing of it could be read
}

// ReadAccess reads the Access of a file, whatever else is wrong with it: the
// bridge that runs took the file as it was. Where nothing of the file can be
// read the Access is that of an empty one. The error is Faults: that there is
// no such file.
func ReadAccess(path string, env Lookup) (Access, error) {
	data, err := ReadFile(path)
	if err != nil {
		return Access{}, Faults{{File: path, Message: reason(err) + "; name the configuration with --config"}}
	}
	root, fault := parse(path, data)
	c, faults := decode(path, root, env)
	if fault != nil {
		faults = Faults{*fault}
	} else {
		faults = append(faults, c.Validate()...)
	}
	if !validName(c.Owner) {
		c.Owner = ""
	}
	return Access{Owner: c.Owner, Admin: c.Admin, Telemetry: c.Telemetry, Faults: faults.sorted()}, nil
}

// Under returns those faults that are about one section of the file, such as
// admin; of the empty section those about the file as a whole.
func (fs Faults) Under(section string) Faults {
	return slices.DeleteFunc(slices.Clone(fs), func(f Fault) bool {
		top, _, _ := strings.Cut(f.Path, ".")
		return top != section
	})
}
