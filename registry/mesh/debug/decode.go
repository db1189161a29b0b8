package debug

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// maxClient is the most that istiod may say of one client; it bounds what is
// held in memory beside the mapping.
const maxClient = 8 << 20

// client is one connection to a replica. It is never written once decoded.
type client struct {
	id          string
	node        string // the id without the number of the connection: pod.namespace
	connectedAt time.Time
	publication *metadata.Publication // nil: the client has no such label, or is a bridge
	skipped     []metadata.PublicationError

	unread error     // why istiod's answer for it could not be read; it may publish anything
	again  time.Time // when it is asked for again
}

// answer is what adsz or connections said.
type answer struct {
	clients  map[string]*client
	nameless int       // clients whose id could not be read
	clock    time.Time // istiod's, as far as it can be told
	skipped  []metadata.PublicationError
	bytes    int64
}

// DecodeOptions say what Decode takes.
type DecodeOptions struct {
	MaxBytes int64    // 0: DefaultMaxBytes
	OwnNodes []string // as in Options
	Legacy   bool     // as in Options
	Bridged  bool     // as in Options
}

// Decode reads one answer to adsz as it streams in: what each client publishes
// and what of that could not be read, both in order of connection. An answer
// that is not whole is an error, with nothing beside it.
func Decode(body io.Reader, o DecodeOptions) ([]metadata.Publication, []metadata.PublicationError, error) {
	d := decoder{maxBytes: cmp.Or(o.MaxBytes, DefaultMaxBytes), own: o.OwnNodes, legacy: o.Legacy, bridged: o.Bridged}
	a, err := d.decode(body)
	if err != nil {
		return nil, nil, err
	}
	skipped := a.skipped
	var publications []metadata.Publication
	for _, id := range slices.Sorted(maps.Keys(a.clients)) {
		c := a.clients[id]
		skipped = append(skipped, c.skipped...)
		if c.publication != nil {
			publications = append(publications, *c.publication)
		}
	}
	slices.SortStableFunc(skipped, compareSkipped)
	return publications, skipped, nil
}

// decoder reads answers of adsz and connections, which have one form.
type decoder struct {
	maxBytes int64
	own      []string
	bridged  bool
	legacy   bool
}

// decode reads a whole answer as it streams in; only one client is ever held
// in text. An answer that is not whole is an error, never a shorter one.
func (d *decoder) decode(body io.Reader) (*answer, error) {
	counted := &bounded{r: body, left: d.maxBytes}
	a := &answer{clients: make(map[string]*client)}
	err := d.object(counted, a)
	a.bytes = d.maxBytes - counted.left
	if counted.err != nil {
		return a, counted.err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		err = &causedError{NotAnswer, fmt.Errorf("the answer is not JSON: %w", err)}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = &causedError{Truncated, errors.New("the answer stops before its end")}
	}
	return a, err
}

func (d *decoder) object(r *bounded, a *answer) error {
	buffered := bufio.NewReader(r)
	if err := sniff(buffered); err != nil {
		return err
	}
	dec := json.NewDecoder(buffered)
	if _, err := dec.Token(); err != nil {
		return err //nolint:wrapcheck // decode says what it means
	}
	total := -1
	for dec.More() {
		if err := d.member(dec, r, a, &total); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return err //nolint:wrapcheck // decode says what it means
	}
	if total < 0 {
		return errorOf(NotAnswer, "the answer is JSON, but lists no clients")
	}
	if read := len(a.clients) + a.nameless; read < total {
		return errorOf(Truncated, fmt.Sprintf("the answer lists %d of %d clients", read, total))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errorOf(NotAnswer, "something follows the answer")
	}
	return nil
}

// member reads one member of the answer.
func (d *decoder) member(dec *json.Decoder, r *bounded, a *answer, total *int) error {
	name, err := dec.Token()
	switch {
	case err != nil:
		return err //nolint:wrapcheck // decode says what it means
	case name == "totalClients":
		return number(dec, total)
	case name == "clients":
		return d.list(dec, r, a)
	default:
		return dec.Decode(new(json.RawMessage)) //nolint:wrapcheck // decode says what it means
	}
}

// sniff tells early what is not an answer at all.
func sniff(r *bufio.Reader) error {
	start, err := r.Peek(512)
	text := bytes.TrimLeft(start, " \t\r\n")
	switch {
	case len(text) == 0 && err != nil:
		return err //nolint:wrapcheck // decode says what it means
	case text[0] == '{':
		return nil
	case text[0] == '<':
		return errorOf(NotAnswer, "the answer is an HTML page")
	case bytes.HasPrefix(text, []byte("Proxy not connected")):
		return errorOf(NotServed, "the client is not connected to this replica")
	}
	return errorOf(NotAnswer, "the answer begins with "+naming.Quote(string(text)))
}

func number(dec *json.Decoder, n *int) error {
	if err := dec.Decode(n); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return errorOf(NotAnswer, "totalClients is not a number")
		}
		return err //nolint:wrapcheck // decode says what it means
	}
	return nil
}

// list reads the clients; null is none of them, as Go writes an empty list.
func (d *decoder) list(dec *json.Decoder, r *bounded, a *answer) error {
	start, err := dec.Token()
	if err != nil || start == nil {
		return err //nolint:wrapcheck // decode says what it means
	}
	if start != json.Delim('[') {
		return errorOf(NotAnswer, "clients is not a list")
	}
	for dec.More() {
		r.element = 0
		var s statement
		err := dec.Decode(&s)
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !ok {
			return err //nolint:wrapcheck // decode says what it means
		}
		d.add(s, err, a)
	}
	_, err = dec.Token()
	return err //nolint:wrapcheck // decode says what it means
}

// statement is what istiod says of one client, as far as it matters here. The
// labels are those of the node's metadata: the ones beside it are the pod's
// as soon as istiod knows the pod.
type statement struct {
	ConnectionID string `json:"connectionId"`
	ConnectedAt  string `json:"connectedAt"` // RFC 3339
	Metadata     struct {
		Labels map[string]json.RawMessage `json:"LABELS"`
	} `json:"metadata"`
}

// add adds one client; err is what of its statement could not be read.
func (d *decoder) add(s statement, err error, a *answer) {
	if s.ConnectionID == "" {
		a.nameless++
		reason := "it has no connectionId"
		if err != nil {
			reason = err.Error()
		}
		a.skipped = append(a.skipped, metadata.PublicationError{Text: naming.Quote("client " + strconv.Itoa(len(a.clients)+a.nameless)), Reason: reason})
		return
	}
	c := &client{id: s.ConnectionID, node: nodeOf(s.ConnectionID), connectedAt: moment(s.ConnectedAt)}
	if c.connectedAt.After(a.clock) {
		a.clock = c.connectedAt
	}
	a.clients[c.id] = c
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
	p, skipped := d.parse(c.id, raw)
	c.publication, c.skipped = &p, skipped
}

// moment reads a time; one that cannot be read is the zero time, which is as
// good as any other to tell one connection from the next.
func moment(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

func (d *decoder) parse(id string, raw json.RawMessage) (metadata.Publication, []metadata.PublicationError) {
	var value *string
	if json.Unmarshal(raw, &value) != nil || value == nil {
		return metadata.Publication{Client: id, Unread: true},
			[]metadata.PublicationError{{Client: id, Text: naming.Quote(string(raw)), Reason: "the label is not a string"}}
	}
	if d.legacy {
		return metadata.ParseLegacyPublication(id, *value)
	}
	return metadata.ParsePublication(id, *value)
}

func (d *decoder) isOwn(node string, s statement) bool {
	_, marked := s.Metadata.Labels[metadata.MarkKey]
	return marked && !d.bridged || slices.Contains(d.own, node)
}

// nodeOf takes the counter off that istiod appends to the id of a node. What
// remains is the same after the client has connected again, to whichever
// replica.
func nodeOf(connection string) string {
	at := strings.LastIndexByte(connection, '-')
	if at < 0 || strings.Trim(connection[at+1:], "0123456789") != "" {
		return connection
	}
	return connection[:at]
}

// bounded ends a reading that becomes too large, as a whole or within one
// client.
type bounded struct {
	r       io.Reader
	left    int64
	element int64
	err     error // the limit that was passed; sticky
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	b.element += int64(n)
	switch {
	case b.left < 0:
		b.err = errorOf(TooLarge, "the answer is larger than the limit")
	case b.element > maxClient:
		b.err = errorOf(TooLarge, "the answer has more than 8 MiB for one client")
	default:
		return n, err //nolint:wrapcheck // an io.Reader hands on io.EOF as it is
	}
	return 0, b.err
}
