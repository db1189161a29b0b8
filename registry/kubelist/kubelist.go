// Package kubelist reads lists of the Kubernetes API object by object, so that memory holds
// one object instead of a whole page three times.
package kubelist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// A Page is the metadata of a page of a list.
type Page struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"` // token of the next page; empty for the last
}

// Read reads a list of objects of a kind, and calls item with each object. It fails if the
// list is not complete, or if item does. item may keep the text.
func Read(r io.Reader, kind string, item func(text json.RawMessage) error) (p Page, err error) {
	d := json.NewDecoder(r)
	if err := expect(d, '{'); err != nil {
		return p, err
	}
	var got string
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return p, wrapReadError(err)
		}
		switch name {
		case "kind":
			err = d.Decode(&got)
		case "metadata":
			err = d.Decode(&p)
		case "items":
			err = readItems(d, item)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return p, wrapReadError(err)
		}
	}
	if err := expect(d, '}'); err != nil {
		return p, err
	}
	if got != kind+"List" { // another response, which would look like an empty list
		return p, fmt.Errorf("expected a list of %s, got %q", kind, got)
	}
	return p, nil
}

func readItems(d *json.Decoder, item func(json.RawMessage) error) error {
	switch first, err := d.Token(); {
	case err != nil:
		return err
	case first == nil:
		return nil
	case first != json.Delim('['):
		return fmt.Errorf("items: expected a list, got %v", first)
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
		return wrapReadError(err)
	case got != want:
		return fmt.Errorf("not a JSON object: expected %v, got %v", want, got)
	}
	return nil
}

// wrapReadError wraps an error of the decoder. The end of the text is unexpected.
func wrapReadError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read list: %w", err)
}

// A Limit is the maximum of objects in a page. The zero value means 500.
type Limit int64

const firstLimit = 500

// Value returns the limit for a request.
func (l Limit) Value() int64 {
	if l == 0 {
		return firstLimit
	}
	return int64(l)
}

// Reduced returns a lower limit after a response exceeded limits.maxReceive when so many
// objects had been read. It returns false if the limit is already 1.
func (l Limit) Reduced(objects int64) (Limit, bool) {
	n := l.Value()
	if n == 1 {
		return l, false
	}
	return Limit(max(min(n/2, objects*3/4), 1)), true //nolint:mnd // a margin, because later objects may be larger
}

// ErrTooLarge reports that a response was larger than the limit of Bound.
var ErrTooLarge = errors.New("the response is larger than limits.maxReceive allows")

// Bound returns a wrapper for rest.Config.Wrap that limits responses to a number of bytes.
// 0 means no limit.
func Bound(maxBytes int64) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next, maxBytes} }
}

// boundedTransport fails the reading of responses that are too large. It does not limit a
// watch, because client-go limits each of its events.
type boundedTransport struct {
	http.RoundTripper

	maxBytes int64
}

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil && b.maxBytes > 0 && r.URL.Query().Get("watch") == "" {
		response.Body = &boundedBody{response.Body, b.maxBytes}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser

	remaining int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}
