package debug

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// maxClient bounds the text of one client, which is held in memory.
const maxClient = 8 << 20

// connectedClient is one connection to a replica. It is never written once decoded.
type connectedClient struct {
	id          string
	node        string // the id without the number of the connection: pod.namespace
	connectedAt time.Time
	publication *metadata.Publication // nil: the client has no such label, or is a bridge
	skipped     []metadata.PublicationError

	unread  error     // why it could not be read; it may publish anything
	retryAt time.Time // when it is read again
}

// clientList is a clientList to adsz or connections.
type clientList struct {
	clients  map[string]*connectedClient
	nameless int       // clients whose id could not be read
	clock    time.Time // istiod's; at least the newest time in the response
	skipped  []metadata.PublicationError
	bytes    int64
}

// clientListDecoder decodes responses to adsz and connections, which have the same form.
type clientListDecoder struct{ o *Options }

// decode decodes a response while it is received, holding the text of one client. An
// incomplete response is an error.
func (d *clientListDecoder) decode(body io.Reader) (*clientList, error) {
	counted := &boundedReader{r: body, remaining: d.o.MaxBytes}
	resp := &clientList{clients: make(map[string]*connectedClient)}
	err := d.decodeObject(counted, resp)
	resp.bytes = d.o.MaxBytes - counted.remaining
	if counted.err != nil {
		return resp, counted.err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		err = &Error{Cause: NotAnswer, Err: fmt.Errorf("the response is not JSON: %w", err)}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = &Error{Cause: Truncated, Err: errors.New("the response stops before its end")}
	}
	return resp, err
}

func (d *clientListDecoder) decodeObject(r *boundedReader, resp *clientList) error {
	buffered := bufio.NewReader(r)
	if err := checkBeginning(buffered); err != nil {
		return err
	}
	dec := json.NewDecoder(buffered)
	if _, err := dec.Token(); err != nil {
		return err
	}
	total := -1
	for dec.More() {
		if err := d.decodeMember(dec, r, resp, &total); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if total < 0 {
		return newError(NotAnswer, "the response is JSON, but lists no clients")
	}
	if read := len(resp.clients) + resp.nameless; read < total {
		return newError(Truncated, fmt.Sprintf("the response lists %d of %d clients", read, total))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return newError(NotAnswer, "something follows the response")
	}
	return nil
}

func (d *clientListDecoder) decodeMember(dec *json.Decoder, r *boundedReader, resp *clientList, total *int) error {
	name, err := dec.Token()
	switch {
	case err != nil:
		return err
	case name == "totalClients":
		err := dec.Decode(total)
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return newError(NotAnswer, "totalClients is not a number")
		}
		return err
	case name == "clients":
		return d.decodeClients(dec, r, resp)
	default:
		return dec.Decode(new(json.RawMessage))
	}
}

// decodeClients reads the clients; null is none of them, as Go writes an empty decodeClients.
func (d *clientListDecoder) decodeClients(dec *json.Decoder, r *boundedReader, resp *clientList) error {
	start, err := dec.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return newError(NotAnswer, "clients is not a list")
	}
	for dec.More() {
		r.clientBytes = 0
		var s clientStatus
		err := dec.Decode(&s)
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !ok {
			return err
		}
		d.addClient(s, err, resp)
	}
	_, err = dec.Token()
	return err
}

// addClient adds one client; err is what of it could not be read.
func (d *clientListDecoder) addClient(s clientStatus, err error, resp *clientList) {
	if s.ConnectionID == "" {
		resp.nameless++
		reason := "it has no connectionId"
		if err != nil {
			reason = err.Error()
		}
		resp.skipped = append(resp.skipped, metadata.PublicationError{Text: naming.Quote("client " + strconv.Itoa(len(resp.clients)+resp.nameless)), Reason: reason})
		return
	}
	c := &connectedClient{id: s.ConnectionID, node: nodeOf(s.ConnectionID), connectedAt: parseTime(s.ConnectedAt)}
	if c.connectedAt.After(resp.clock) {
		resp.clock = c.connectedAt
	}
	resp.clients[c.id] = c
	if d.isOwn(c.node, s) {
		return
	}
	if err != nil {
		c.publication = &metadata.Publication{Client: c.id, Unread: true}
		c.skipped = []metadata.PublicationError{{Client: c.id, Text: naming.Quote(c.id), Reason: err.Error()}}
		return
	}
	raw, published := s.Metadata.Labels[metadata.PublicationLabel]
	if !published {
		return
	}
	p, skipped := d.parsePublication(c.id, raw)
	c.publication, c.skipped = &p, skipped
}

func (d *clientListDecoder) parsePublication(id string, raw json.RawMessage) (metadata.Publication, []metadata.PublicationError) {
	var value *string
	if json.Unmarshal(raw, &value) != nil || value == nil {
		return metadata.Publication{Client: id, Unread: true},
			[]metadata.PublicationError{{Client: id, Text: naming.Quote(string(raw)), Reason: "the label is not a string"}}
	}
	if d.o.Legacy {
		return metadata.ParseLegacyPublication(id, *value)
	}
	return metadata.ParsePublication(id, *value)
}

func (d *clientListDecoder) isOwn(node string, s clientStatus) bool {
	_, marked := s.Metadata.Labels[metadata.MarkKey]
	return marked && !d.o.Bridged || slices.Contains(d.o.OwnNodes, node)
}

// clientStatus is what is read of one client. The labels are those of the node's
// metadata; others are the pod's once istiod knows the pod.
type clientStatus struct {
	ConnectionID string `json:"connectionId"`
	ConnectedAt  string `json:"connectedAt"` // RFC 3339
	Metadata     struct {
		Labels map[string]json.RawMessage `json:"LABELS"`
	} `json:"metadata"`
}

// parseTime parses a time. An invalid one is the zero time, which still distinguishes
// connections.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// nodeOf removes the counter that istiod appends to the id of a node. The node is the
// same after the client has connected again, to any replica.
func nodeOf(connection string) string {
	at := strings.LastIndexByte(connection, '-')
	if at < 0 || strings.Trim(connection[at+1:], "0123456789") != "" {
		return connection
	}
	return connection[:at]
}

// checkBeginning rejects what is no response of istiod by its first bytes.
func checkBeginning(r *bufio.Reader) error {
	start, err := r.Peek(512)
	text := bytes.TrimLeft(start, " \t\r\n")
	switch {
	case len(text) == 0 && err != nil:
		return err
	case text[0] == '{':
		return nil
	case text[0] == '<':
		return newError(NotAnswer, "the response is an HTML page")
	case bytes.HasPrefix(text, []byte("Proxy not connected")):
		return newError(NotServed, "the client is not connected to this replica")
	}
	return newError(NotAnswer, "the response begins with "+naming.Quote(string(text)))
}

// boundedReader limits the size of a response, in total and of one client.
type boundedReader struct {
	r           io.Reader
	remaining   int64
	clientBytes int64
	err         error // which limit was exceeded
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	b.remaining -= int64(n)
	b.clientBytes += int64(n)
	switch {
	case b.remaining < 0:
		b.err = newError(TooLarge, "the response is larger than the limit")
	case b.clientBytes > maxClient:
		b.err = newError(TooLarge, "the response has more than 8 MiB for one client")
	default:
		return n, err
	}
	return 0, b.err
}
