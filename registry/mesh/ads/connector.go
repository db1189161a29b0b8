package ads

import "time"

// maxPingInterval bounds the interval of pings to servers that reject frequent ones.
const maxPingInterval = 10 * time.Minute

// connector makes connections. It is owned by Run's goroutine.
type connector struct {
	options *Options // immutable

	// How the next connection is made.
	mode         Mode
	modeSwitched bool // no response was received since the mode was switched
	pingInterval time.Duration
	preferred    []string // addresses to try first, from Client.Redial
	lastAddress  string   // address of the last connection that received a response; avoided

	connections int // how many were made
	replaceUpTo int // connections up to this number have to be replaced

	// When the next one is made.
	nextAttempt          time.Time
	nextSuccessorAttempt time.Time
	failures             int    // in a row, without a response
	reportedErrorKey     string // key of the failure that was last logged and reported to subscribers
}

// replaceConnection requests the replacement of all connections made so far.
func (c *connector) replaceConnection(preferred []string) {
	c.replaceUpTo, c.preferred = c.connections, preferred
}

// dial returns a stream on a new connection, before the stream is opened.
func (c *connector) dial() (*adsStream, error) {
	d := &dialer{options: c.options, preferred: c.preferred, avoided: c.lastAddress}
	conn, err := c.options.dial(c.pingInterval, d)
	if err != nil {
		return nil, err
	}
	c.connections++
	return &adsStream{
		conn: conn, dialer: d, number: c.connections, mode: c.mode,
		requests: make(chan discoveryRequest), started: time.Now(),
	}, nil
}
