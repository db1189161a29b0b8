package zookeeper_test

import (
	"io"
	"net"
)

type netConn = net.Conn

func pipe() (net.Conn, net.Conn) { return net.Pipe() }

// discard reads until the other side closes.
func discard(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
