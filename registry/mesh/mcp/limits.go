package mcp

import "time"

// Where there is neither TLS nor a list of networks nobody vouches for a client.
// So everything that one takes is bounded here, in number and in time.
const (
	// maxConnections bounds what connections cost that nobody vouched for yet.
	// An istiod has one.
	maxConnections = 8 * maxStreams

	// maxFromOne is how many of them one address may have, so that it leaves
	// room for others; all istiods of a mesh fit in it, behind one gateway.
	maxFromOne = 2 * maxStreams

	// handshakeWithin is how long a client may take to show who it is.
	handshakeWithin = 10 * time.Second

	// idleFor is how long a connection may be without a stream.
	idleFor = 5 * time.Minute

	// maxStreams is more istiods than any mesh has. Each may have one answer
	// in memory that it does not read.
	maxStreams = 100

	// maxStreamsFromOne is how many one address may have, so that it leaves
	// room for others. All istiods share one behind a gateway or a sidecar.
	maxStreamsFromOne = maxStreams / 2

	// maxStreamsOnOne is how many one connection may have. An istiod has one;
	// a proxy that carries several istiods opens another connection.
	maxStreamsOnOne = 10

	// askWithin is how long a stream may ask for nothing. istiod asks at once.
	askWithin = 5 * time.Second

	// readWithin is how long a peer may take to read one answer: 100,000
	// endpoints are ten megabytes.
	readWithin = time.Minute

	// maxTypes is more types than any istiod asks for, about twenty. Each is
	// kept for as long as the stream lives.
	maxTypes = 100
)
