package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// doors are the sockets that the process listens at, by address. A server is
// given a listener of its own on the same socket, so that nobody who connects
// is turned away while one server takes the place of another.
type doors struct {
	mu   sync.Mutex
	open map[string]door
}

// door is a socket that can be handed out more than once.
type door interface {
	net.Listener
	File() (*os.File, error)
}

func newDoors() *doors { return &doors{open: make(map[string]door)} }

// listen returns a listener at host:port, which the caller closes. The socket
// itself stays open until it is shut.
func (d *doors) listen(ctx context.Context, address string) (net.Listener, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[address] == nil {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("%w; another process may hold the port", err)
		}
		at, ok := l.(door)
		if !ok {
			return nil, errors.Join(fmt.Errorf("%s: a %T cannot be shared", address, l), l.Close())
		}
		d.open[address] = at
	}
	file, err := d.open[address].File()
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", address, err)
	}
	l, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("share %s: %w", address, err)
	}
	return l, nil
}

// shut closes the sockets at which nobody serves any more.
func (d *doors) shut(wanted func(address string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for address, at := range d.open {
		if !wanted(address) {
			_ = at.Close()
			delete(d.open, address)
		}
	}
}
