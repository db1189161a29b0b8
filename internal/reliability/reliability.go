// Package reliability knows every fault that the bridge is tried with, reads
// from a run of the tests which of them it stood, and writes and checks the
// table in docs/reliability.md. It runs no test itself.
package reliability

import (
	"regexp"
	"slices"
)

// A Fault is something that goes wrong, or an acceptance statement about it,
// and what users may rely on meanwhile.
type Fault struct {
	ID    string // F01 to F60, or the A.. of an acceptance statement
	What  string
	Users string // what they see
}

// id finds the ids in the name of a test.
var id = regexp.MustCompile(`(?:^|[^A-Za-z0-9])([AF]\d\d)(?:$|[^0-9A-Za-z])`)

// ids returns which faults the name of a test, or of one of its parts, says it
// tries.
func ids(name string) []string {
	var found []string
	for len(name) > 0 {
		at := id.FindStringSubmatchIndex(name)
		if at == nil {
			break
		}
		found = append(found, name[at[2]:at[3]])
		name = name[at[3]:]
	}
	return slices.Compact(slices.Sorted(slices.Values(found)))
}

// Faults returns all of them in the order of the table. F41, the API of
// Kubernetes, is not among them: no target writes to it yet.
func Faults() []Fault {
	return slices.Concat(ofTheBridge(), ofTheMesh(), ofNacos(), ofZooKeeper(), ofOthers(), ofInputs(), acceptance())
}

func ofTheBridge() []Fault {
	return []Fault{
		{"F01", "kill -9 of the bridge, restart at once", "ZooKeeper: registrations stay. Nacos: they stay with a second publisher, and return with the restart without one. No wrong deletion, no duplicate"},
		{"F02", "kill -9 half-way through a write", "the next start finishes it; no half service is deleted"},
		{"F03", "rolling update by SIGTERM", "no instance disappears from a consumer's view"},
		{"F04", "a pause past the session time, as of a virtual machine", "what was paused overwrites nothing newer; entries of its session are made again"},
		{"F05", "too little memory", "it becomes slower, and never tells a lie"},
		{"F06", "the bridge is away while sources change", "one minimal difference at its start"},
		{"F07", "a restart in which nothing changed", "ZooKeeper: no write. Nacos: at most one batch a service"},
		{"F08", "a reload of a file with a fault", "the old configuration goes on"},
		{"F09", "a reload that removes a bridge or a registry", "what it had written is kept or withdrawn, as configured"},
		{"F10", "the owner is changed by mistake", "it refuses to start unless told to adopt"},
	}
}

func ofTheMesh() []Fault {
	return []Fault{
		{"F11", "istiod restarts and is empty or partial at first", "nothing is withdrawn"},
		{"F12", "istiod answers with no cluster at all", "nothing is withdrawn"},
		{"F13", "istiod removes one service", "it is withdrawn as the guard says, at once with the guard at zero"},
		{"F14", "the stream is reset", "it connects again and writes nothing"},
		{"F15", "something is removed while the stream is away", "the removal is found"},
		{"F16", "a resource that cannot be read", "that one is rejected and reported, others are applied"},
		{"F17", "an answer of many megabytes", "works up to the limit; then a clear error, and the last state stays"},
		{"F18", "a half-open connection to istiod", "found within 30 s"},
		{"F19", "two istiods with different views", "nothing flaps"},
		{"F20", "the debug API refuses, is slow or broken", "the known keys go on, with one warning"},
		{"F21", "a token expires", "it is read again, without a gap"},
		{"F22", "certificates change, expire or are of another", "read again; else a clear error, and the last state stays"},
	}
}

func ofNacos() []Fault {
	return []Fault{
		{"F23", "Nacos is down, or frozen", "the mesh keeps the last state; no flood in the log, no busy loop"},
		{"F24", "Nacos restarts with its data wiped", "the mesh keeps its endpoints; what the bridge had registered is back within ten seconds"},
		{"F25", "Nacos loses a part silently", "found and repaired within one verification"},
		{"F26", "Nacos denies, or throttles", "told as an error; no deletion; slower attempts"},
		{"F27", "a token of Nacos expires while watching", "renewed before; the watch goes on"},
		{"F28", "clocks differ or jump", "the order of connections counts, not the time of day"},
		{"F29", "a push is lost", "found within one verification"},
		{"F30", "pushes come twice, in another order, or stale", "the newest counts in the end"},
		{"F31", "the list of services changes while it is read", "a partial list is no list"},
	}
}

func ofZooKeeper() []Fault {
	return []Fault{
		{"F32", "the connection to ZooKeeper is lost for less than a session", "session and entries stay, nothing is written"},
		{"F33", "the session expires", "entries of the session are made again, once"},
		{"F34", "the node of an old session is still there", "replaced if it is ours"},
		{"F35", "a server dies or freezes, a new leader is elected, or the quorum is lost", "told of; writes wait, readers keep the last state"},
		{"F36", "a change is missed while disconnected", "found when the connection is back"},
		{"F37", "one subtree is denied", "that subtree is an error, others go on"},
		{"F38", "the answer to a write is lost", "looked at before anything is repeated"},
		{"F39", "a folder or a node reaches 1 MiB", "refused and told before Java's clients break"},
		{"F40", "somebody deletes the root", "import: nothing is withdrawn. Export: written again"},
	}
}

func ofOthers() []Fault {
	return []Fault{
		{"F42", "another actor edits what is ours", "restored or reported, never an endless war"},
		{"F43", "another's entry has our key already", "never touched; shown as a conflict"},
		{"F44", "two bridges of one owner", "the second one refuses or waits"},
		{"F45", "two bridges of different owners bring one service", "one wins by rule, nothing flaps"},
		{"F46", "a ring of bridges", "ends at the first return"},
		{"F47", "a leader is cut off from what it holds its lease in", "it stops writing before another starts"},
		{"F48", "reads work and writes fail", "nothing is deleted by reads alone; told"},
		{"F49", "a slow destination", "others are not held up; its changes are gathered"},
		{"F50", "a slow reader of what we serve", "bounded; others are served"},
		{"F51", "a thousand changes a second", "few writes, flat memory, the end is right"},
		{"F52", "ten thousand services appear at once", "written at a bounded rate, and all of them"},
		{"F53", "an endpoint flaps ten times a second", "at most one write a second"},
	}
}

func ofInputs() []Fault {
	return []Fault{
		{"F54", "hostile names", "refused or escaped; never another's path; safe in logs"},
		{"F55", "huge metadata", "trimmed or refused, and others go on"},
		{"F56", "addresses that mean nothing, or too much", "left out, with a reason"},
		{"F57", "one address in two services, or twice in one", "kept apart; once in each"},
		{"F58", "a full disk, a broken state file", "goes on without it, and says so"},
		{"F59", "no more files, no name, another's address", "slower attempts, no leak, no wrong server"},
		{"F60", "a flood of requests to the admin port", "bounded; what the bridge does is not held up"},
	}
}

func acceptance() []Fault {
	return []Fault{
		{"A38", "a service leaves the registry; many do at once", "its ServiceEntry goes; a mass of them is held until approved or confirmed"},
		{"A46", "two replicas, and the leader is lost", "no duplicate, no flapping, nothing withdrawn at the take-over"},
		{"A47", "SIGTERM and SIGKILL", "entries stay or go as configured, in time"},
		{"A55", "something is added after the start", "it is told everything, in order"},
	}
}
