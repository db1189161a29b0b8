package zookeeper

import (
	"net"
	"sync"
)

// outbox holds the packets that wait to be written. It is bounded: a client
// that reads too slowly for it is cut off.
type outbox struct {
	wake chan struct{} // ready while there is something to write

	mu      sync.Mutex
	packets net.Buffers
	last    bool
}

// maxWaiting is how many packets may wait.
const maxWaiting = 100_000

func newOutbox() outbox { return outbox{wake: make(chan struct{}, 1)} }

// put adds a packet, and reports whether there was room.
func (o *outbox) put(packet []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.packets) >= maxWaiting {
		return false
	}
	o.packets = append(o.packets, packet)
	o.signal()
	return true
}

// end says that no packet will follow.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.signal()
}

// take returns what waits, and whether nothing will follow.
func (o *outbox) take() (net.Buffers, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	packets := o.packets
	o.packets = nil
	return packets, o.last
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
