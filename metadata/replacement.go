package metadata

// A Replacement is how a changed entry takes the place of the one before in
// ZooKeeper. It follows who reads the format: what consumers watch, and what
// they do meanwhile.
type Replacement uint8

// The kinds of replacement.
const (
	// InPlace sets the data of the node. Consumers watch it, or ask again and
	// again.
	InPlace Replacement = iota

	// Recreated deletes the node and creates it anew, in one transaction.
	// Consumers watch the names alone, and read the data whenever these change.
	Recreated

	// Overlapping creates another node, and deletes the one before a while
	// later. Consumers know nodes by their names, and have no provider
	// between the end of one and the beginning of the other, however short.
	Overlapping
)
