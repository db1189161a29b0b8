// Package bridge keeps a target in sync with the tables of one or more sources. It plans
// what the target should store, writes the difference, and holds deletions back until
// both sides are known well enough. It knows no registry and no format.
//
//	bridge, loop                what a caller configures, and what it can ask of a running loop
//	driver                      the goroutine of a loop: waits, runs the engine, makes the calls
//	engine, agenda              the engine: what happened, which group is due when
//	pipeline                    one bridge: its source's certainty, its services, their entries
//	calls, leave                the next call for a group, and which of its changes are allowed now
//	outcome                     the result of a call: progress, failures, retries
//	guards, hold, records       deletions: who judges them, what an operator decides, what outlives the process
//	drain, registered           providers that register themselves: those that deregistered, those under other names
//	election                    several replicas
//	view, status, event         what is shown: the status cache, its types, the events and the log
//
// The planner (package plan) compares claims with stored entries; the guard (package
// guard) judges deletions. Both are pure.
//
// An engine decides and does no I/O: it receives what sources report, the results of
// calls and the time, and returns the calls to make.
//
// Goroutines: that of Loop.Run is the only one that touches the engine. It starts one for
// each call in flight: at most Options.Workers, and one for records. It also starts one for
// each Bridge.Begin. The engine starts some for projections, and waits for them.
package bridge
