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

// maxClientBytes bounds the text of one client, which has to fit into memory.
const maxClientBytes = 8 << 20

// connectedClient is one connection of a client to a replica. It is immutable.
type connectedClient struct {
	id          string
	node        string // the id without the number of the connection: pod.namespace
	connectedAt time.Time

	// publication is nil if the client does not publish keys, or is a bridge.
	publication *metadata.Publication
	skipped     []metadata.PublicationError // keys that cannot be parsed

	unread  error     // why the client could not be read; it may publish any key
	retryAt time.Time // when to read an unread client again
}

// clientList is the content of a page: adsz or connections.
type clientList struct {
	clients  map[string]*connectedClient // by id
	nameless int                         // clients whose id could not be read
	skipped  []metadata.PublicationError // nameless clients
	clock    time.Time                   // of istiod: the newest time in the response, or later
	bytes    int64
}

// clientListDecoder decodes adsz and connections, which have the same form.
type clientListDecoder struct{ o *Options }

// decode decodes a response while it is received. It buffers the text of one client. It fails
// if the response is incomplete, too large, or not istiod's; the list then has the size that
// was read.
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
		err = &Error{Cause: Truncated, Err: errors.New("the response is incomplete")}
	}
	return resp, err
}

// decodeObject decodes the response, which is one JSON object.
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
		return newError(NotAnswer, "the response is JSON without a list of clients")
	}
	if read := len(resp.clients) + resp.nameless; read < total {
		return newError(Truncated, fmt.Sprintf("the response lists %d of %d clients", read, total))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return newError(NotAnswer, "more data follows the response")
	}
	return nil
}

// decodeMember decodes one member of the object. It sets total to the number of clients.
func (d *clientListDecoder) decodeMember(
	dec *json.Decoder, r *boundedReader, resp *clientList, total *int,
) error {
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

// decodeClients decodes the clients. null is an empty list, because Go encodes it like that.
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

// addClient adds one client. err is why a part of it could not be decoded.
func (d *clientListDecoder) addClient(s clientStatus, err error, resp *clientList) {
	if s.ConnectionID == "" {
		resp.nameless++
		reason := "it has no connectionId"
		if err != nil {
			reason = err.Error()
		}
		position := strconv.Itoa(len(resp.clients) + resp.nameless)
		resp.skipped = append(resp.skipped,
			metadata.PublicationError{Text: naming.Quote("client " + position), Reason: reason})
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

// parsePublication parses the keys in the label of a client.
func (d *clientListDecoder) parsePublication(
	id string, raw json.RawMessage,
) (metadata.Publication, []metadata.PublicationError) {
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

// isOwn reports whether a client is a bridge, whose keys are ignored.
func (d *clientListDecoder) isOwn(node string, s clientStatus) bool {
	_, marked := s.Metadata.Labels[metadata.MarkKey]
	return marked && !d.o.Bridged || slices.Contains(d.o.OwnNodes, node)
}

// clientStatus is the decoded part of one client. LABELS are the labels in the node's metadata.
// Other fields have the labels of the pod, once istiod knows the pod.
type clientStatus struct {
	ConnectionID string `json:"connectionId"`
	ConnectedAt  string `json:"connectedAt"` // RFC 3339
	Metadata     struct {
		Labels map[string]json.RawMessage `json:"LABELS"`
	} `json:"metadata"`
}

// parseTime parses a time. It returns the zero time for an invalid one. Connections are
// still distinguished by their ids.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// nodeOf returns the id without the counter that istiod appends to it. The result stays the same
// when the client reconnects, to any replica.
func nodeOf(connection string) string {
	at := strings.LastIndexByte(connection, '-')
	if at < 0 || strings.Trim(connection[at+1:], "0123456789") != "" {
		return connection
	}
	return connection[:at]
}

// checkBeginning rejects a response whose first bytes show that it is not istiod's.
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

// boundedReader limits the size of a response, and of each client in it.
type boundedReader struct {
	r           io.Reader
	remaining   int64 // of the whole response
	clientBytes int64 // read for the current client
	err         error // the exceeded limit
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
	case b.clientBytes > maxClientBytes:
		b.err = newError(TooLarge, "the response has more than 8 MiB for one client")
	default:
		return n, err
	}
	return 0, b.err
}
