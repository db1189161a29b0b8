package zookeeper

import (
	"errors"
	"sync"
)

// hosts gives the servers in turn. Unlike the library's own it leaves their
// names to the dialer, so that they are resolved for every connection and a
// name that cannot be resolved yet is no fault at the start.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	tried   int // since a connection succeeded
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	if len(servers) == 0 {
		return errors.New("no server given")
	}
	h.servers = servers
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider: the library rests for a second where it is
// told that all servers were tried.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next%len(h.servers)]
	retryStart = h.tried > 0 && h.tried%len(h.servers) == 0
	h.next++
	h.tried++
	return server, retryStart
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}
