package ads

import (
	"time"
)

// slowestPing bounds the interval of pings to servers that refuse frequent ones.
const slowestPing = 10 * time.Minute

// connector is what the next connection and the next stream are made from.
type connector struct {
	options      *Options
	mode         Mode
	modeSwitched bool // since a message was received
	pingInterval time.Duration

	connections int      // connections so far
	replaceUpTo int      // connections up to this number are to be replaced
	preferred   []string // addresses that the replacement tries first
	lastAddress string   // address of the connection that delivered last

	nextAttempt          time.Time // not before this is another stream opened
	nextSuccessorAttempt time.Time // not before this is a second stream opened
	failures             int       // in a row
	reportedErrorKey     string    // key of the failure that subscribers were notified of
}

func (c *connector) replaceConnection(first []string) {
	c.replaceUpTo, c.preferred = c.connections, first
}

// dial returns a session on a new connection, before it opens its stream.
func (c *connector) dial() (*adsStream, error) {
	d := &dialer{options: c.options, preferred: c.preferred, avoided: c.lastAddress}
	conn, err := c.options.dial(c.pingInterval, d)
	if err != nil {
		return nil, err
	}
	c.connections++
	return &adsStream{conn: conn, dialer: d, number: c.connections, mode: c.mode, requests: make(chan discoveryRequest), started: time.Now()}, nil
}
