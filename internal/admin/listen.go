package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// unixPrefix begins an address that is a socket in the file system.
const unixPrefix = "unix:"

func off(address string) bool { return address == "" || address == "off" }

// listen opens a listener, nil for an address that leaves it out.
func listen(ctx context.Context, setting, address string) (net.Listener, error) {
	if off(address) {
		return nil, nil //nolint:nilnil // a listener that was left out
	}
	l, err := open(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; name a free address, or off", setting, address, err)
	}
	return l, nil
}

func open(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	file, unix := strings.CutPrefix(address, unixPrefix)
	if !unix {
		return config.Listen(ctx, "tcp", address) //nolint:wrapcheck // the caller names setting and address
	}
	if err := removeDead(ctx, file); err != nil {
		return nil, err
	}
	// Linux gives the file the mode of the descriptor. With a chmod after Listen
	// others could connect in between.
	var late error
	config.Control = func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { late = syscall.Fchmod(int(fd), ownerOnly) })
	}
	l, err := config.Listen(ctx, "unix", file)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names setting and address
	}
	if late == nil {
		return l, nil
	}
	if err := os.Chmod(file, ownerOnly); err != nil { // another system
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// ownerOnly is the mode of the socket.
const ownerOnly = 0o600

// removeDead removes a socket that a process left behind which was killed.
func removeDead(ctx context.Context, file string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", file)
	if err == nil {
		return errors.Join(errors.New("another process listens there"), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	// A file that is no socket refuses as well, and is somebody's.
	if info, err := os.Lstat(file); err != nil || info.Mode().Type() != os.ModeSocket {
		return errors.Join(errors.New("is no socket"), err)
	}
	return os.Remove(file) //nolint:wrapcheck // names the file itself
}
