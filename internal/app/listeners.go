package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// listeners are the sockets that the process listens at, by address. A server is
// given a listener of its own on the same socket, so that nobody who connects
// is refused while one server replaces another.
type listeners struct {
	mu   sync.Mutex
	open map[string]sharedListener
}

// sharedListener is a socket that can be handed out more than once.
type sharedListener interface {
	net.Listener
	File() (*os.File, error)
}

func newListeners() *listeners { return &listeners{open: make(map[string]sharedListener)} }

// listen returns a listener at host:port, which the caller closes. The socket
// itself stays open until it is closed.
func (s *listeners) listen(ctx context.Context, address string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[address] == nil {
		l, err := s.bind(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("%w; another process may hold the port", err)
		}
		at, ok := l.(sharedListener)
		if !ok {
			return nil, errors.Join(fmt.Errorf("%s: a %T cannot be shared", address, l), l.Close())
		}
		s.open[address] = at
	}
	file, err := s.open[address].File()
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", address, err)
	}
	l, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("share %s: %w", address, err)
	}
	return l, nil
}

// bind opens a socket. Where one of ours holds the port at another address, as
// 127.0.0.1:P does for :P, both share it until the old one is closed. Other
// processes never do: the sockets of ours refuse to once it is bound.
func (s *listeners) bind(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	own := s.samePort(address)
	if !errors.Is(err, syscall.EADDRINUSE) || len(own) == 0 {
		return l, err
	}
	for _, o := range own {
		if err := setShared(o, 1); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return share(c, 1) }}
	if l, err = config.Listen(ctx, "tcp", address); err == nil {
		own = append(own, l)
	}
	for _, o := range own {
		err = errors.Join(err, setShared(o, 0))
	}
	return l, err
}

// samePort returns our sockets that hold the port of an address.
func (s *listeners) samePort(address string) []net.Listener {
	var all []net.Listener
	_, port, _ := net.SplitHostPort(address)
	for held, at := range s.open {
		if _, p, _ := net.SplitHostPort(held); p == port {
			all = append(all, at)
		}
	}
	return all
}

func setShared(l net.Listener, on int) error {
	c, ok := l.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T has no socket", l)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return share(raw, on)
}

func share(c syscall.RawConn, on int) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, on) })
	return errors.Join(err, set)
}

// closeOthers closes the sockets at which nobody serves any more.
func (s *listeners) closeOthers(keep func(address string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, at := range s.open {
		if !keep(address) {
			_ = at.Close()
			delete(s.open, address)
		}
	}
}
