package audit

import (
	"os"
	"os/user"
)

// User says who runs the command, for the record.
func User() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
