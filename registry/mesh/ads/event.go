package ads

// Wildcard is the name that stands for everything the server has of a type.
const Wildcard = "*"

// Kind is a resource type as a subscriber wants it read.
type Kind[T any] struct {
	// URL is the type URL, type.googleapis.com/envoy.config.cluster.v3.Cluster.
	URL string
	// Decode reads one resource, whose bytes are of type URL. It returns the name
	// even beside an error where it could be read, so that the error is told
	// under it. It is called only for bytes that are new, from several goroutines
	// where many are; the value may be shared among subscribers and must not
	// refer to data.
	Decode func(data []byte) (name string, value T, err error)
	// Full says that a state-of-the-world response holds all resources, so that
	// absence means gone: clusters and listeners.
	Full bool
}

// Resource is one resource as it was last told.
type Resource[T any] struct {
	Name    string
	Version string // as the server gave it; may be empty
	Value   T
}

// Event is what one response, one expiry or one subscription changed, for one
// subscription. Lists are sorted by name; a name is in at most one of Changed,
// Removed, Unknown and Invalid.
type Event[T any] struct {
	// Epoch is the number of the stream that told it, from 1.
	Epoch int
	// Connection is the number of the connection of the newest stream, from 1;
	// several streams may share one.
	Connection int
	// Changed holds new resources and those whose content changed. One that was
	// rejected before is reported again once it is valid, even if unchanged.
	Changed []Resource[T]
	// Confirmed names held resources that this stream told for the first time and
	// that are as they were; with Changed it is all that is known to be current.
	Confirmed []string
	// Removed names what the server said is not there (any more).
	Removed []string
	// Resync is set where Removed was found while a new stream was compared with
	// what was held before, rather than told as it happened. A server that has
	// only just started may be wrong about it.
	Resync bool
	// Unknown names what was asked for and not answered within Silence. It may
	// exist or not; a value held is still the last known one.
	Unknown map[string]error
	// Invalid names resources that were rejected; a value held stays. A resource
	// without a readable name is under its place in the response.
	Invalid map[string]error
	// Complete is set once per epoch, for a subscription to Wildcard, where this
	// event and those before it of the same epoch told the whole set: what was
	// neither Changed nor Confirmed nor Invalid in this epoch does not exist. In
	// the state of the world only a Full kind is ever complete.
	Complete bool
	// Disconnected is the error of a connection that failed before it delivered
	// anything; nothing is removed by it.
	Disconnected error
	// Ended is why the stream ended that delivered, told before it is closed.
	// Nothing is removed by it, and another stream is opened: until that one
	// tells, what is known may be out of date.
	Ended error
}
