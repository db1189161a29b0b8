package mcp

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
)

// Where there is neither TLS nor a list of networks nobody vouches for a client.
// So everything that one takes is bounded here, in number, in time and in bytes.
const (
	// handshakeWithin is how long a client may take to show who it is.
	handshakeWithin = 10 * time.Second

	// idleFor is how long a connection may be without a stream.
	idleFor = 5 * time.Minute

	// maxStreams is more istiods than any mesh has. Each may have one answer
	// in memory that it does not read.
	maxStreams = 100

	// maxDataPlanes is how many streams there may be where data planes are
	// served too. Each costs some kilobytes, and what it does not read.
	maxDataPlanes = 10_000

	// maxStreamsOnOne is how many one connection may have. An istiod has one;
	// a proxy that carries several istiods opens another connection.
	maxStreamsOnOne = 10

	// askWithin is how long a stream may ask for nothing. istiod asks at once.
	askWithin = 5 * time.Second

	// readWithin is how long a client may take to read one answer: 100,000
	// endpoints are ten megabytes.
	readWithin = time.Minute

	// maxTypes is more types than any istiod asks for, about twenty. Each is
	// kept for as long as the stream lives.
	maxTypes = 100
)

// In bytes.
const (
	// maxMessage bounds what is read of a request before it is looked at. It
	// is several times what its parts may have.
	maxMessage = 1 << 20

	// maxDataPlaneMessage fits the names of 50,000 clusters, which an Envoy
	// sends with each request in the state of the world.
	maxDataPlaneMessage = 4 << 20

	// maxHeaders bounds what grpc keeps of a stream; a token fits in it.
	maxHeaders = 16 << 10

	// window is what grpc takes from a connection that nobody read yet; by
	// itself it lets that grow to 16 MiB.
	window = 64 << 10

	// maxTypeURL is six times the longest type of Istio's.
	maxTypeURL = 300

	// maxNode is several times the node of an istiod, of which labels are most.
	maxNode = 64 << 10

	// maxKnownBytes is for what a client says it has, which istiod does not say. It is
	// kept until the first answer: about 7,000 hosts.
	maxKnownBytes = 1 << 20
	knownCost     = 64 // what a map takes for one beside its text
)

// excess returns what of a request is more than any istiod sends; nil: nothing.
func (r request) excess() error {
	if n := len(r.typeURL); n > maxTypeURL {
		return fmt.Errorf("a type of %d bytes, and %d are the most", n, maxTypeURL)
	}
	if n := proto.Size(r.node); n > maxNode {
		return fmt.Errorf("a node of %d bytes, and %d are the most", n, maxNode)
	}
	return nil
}

// size returns what it takes to keep what a client says it has, in bytes.
func (r request) size() int {
	n := 0
	for name, version := range r.known {
		n += knownCost + len(name) + len(version)
	}
	return n
}
