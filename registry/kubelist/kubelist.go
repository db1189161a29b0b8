// Package kubelist reads lists of the Kubernetes API object by object, so that what is
// held in memory is one of them, and not a page of them three times.
package kubelist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// A Page is what a list says beside its objects.
type Page struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"` // of the next page; empty: this is the last
}

// Read reads a list of objects of a kind, and calls item with each. It fails unless the
// list is whole. The text is the item's own.
func Read(r io.Reader, kind string, item func(text json.RawMessage) error) (p Page, err error) {
	d := json.NewDecoder(r)
	if err := expect(d, '{'); err != nil {
		return p, err
	}
	var got string
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return p, whole(err)
		}
		switch name {
		case "kind":
			err = d.Decode(&got)
		case "metadata":
			err = d.Decode(&p)
		case "items":
			err = items(d, item)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return p, whole(err)
		}
	}
	if err := expect(d, '}'); err != nil {
		return p, err
	}
	if got != kind+"List" { // else it would look like an empty list
		return p, fmt.Errorf("the answer is no list of %s but %q", kind, got)
	}
	return p, nil
}

func items(d *json.Decoder, item func(json.RawMessage) error) error {
	switch first, err := d.Token(); {
	case err != nil:
		return err
	case first == nil:
		return nil
	case first != json.Delim('['):
		return fmt.Errorf("its items are no list but %v", first)
	}
	for d.More() {
		var text json.RawMessage
		if err := d.Decode(&text); err != nil {
			return err
		}
		if err := item(text); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func expect(d *json.Decoder, want json.Delim) error {
	switch got, err := d.Token(); {
	case err != nil:
		return whole(err)
	case got != want:
		return fmt.Errorf("the answer is no object of JSON: it has %v, not %v", got, want)
	}
	return nil
}

// whole returns an error of reading; the end of the text is one.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read the list: %w", err)
}

// A Limit is how many objects a request lists. The zero value is 500.
type Limit int64

const firstLimit = 500

// Value returns the limit as a request has it.
func (l Limit) Value() int64 {
	if l == 0 {
		return firstLimit
	}
	return int64(l)
}

// Reduced returns a lower limit after an answer that exceeded limits.maxReceive with so
// many objects; false: it cannot be lower.
func (l Limit) Reduced(objects int64) (Limit, bool) {
	n := l.Value()
	if n == 1 {
		return l, false
	}
	return Limit(max(min(n/2, objects*3/4), 1)), true //nolint:mnd // later objects may be larger
}

// ErrTooLarge is why a response is not read to its end.
var ErrTooLarge = errors.New("the response is larger than limits.maxReceive allows")

// Bound returns a wrapper for rest.Config.Wrap that refuses responses of more than so
// many bytes; 0: no limit.
func Bound(most int64) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next, most} }
}

// boundedTransport refuses responses that are too large, except those to a watch: client-go
// limits each of its events.
type boundedTransport struct {
	http.RoundTripper

	max int64
}

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil && b.max > 0 && r.URL.Query().Get("watch") == "" {
		response.Body = &boundedBody{response.Body, b.max}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser

	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}
