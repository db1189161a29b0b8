package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// transport sends requests to one replica. It is owned by the goroutine of a poller.
type transport interface {
	// get requests one page with its parameters, such as connections, and passes the response
	// to read. clock is istiod's time, or zero if the response has none.
	get(ctx context.Context, query string, read func(body io.Reader, clock time.Time) error) error

	// where returns the location of the page, for the text of errors.
	where(query string) string

	// close releases the connections.
	close()
}

// The ports of istiod's debug interface. MonitoringPort also serves istiod's metrics, its
// version and its time.
const (
	MonitoringPort = "15014"
	httpPort       = "8080"
)

// maxHeaderBytes bounds the header of a response.
const maxHeaderBytes = 64 << 10

// httpTransport reads the debug port of one replica.
type httpTransport struct {
	// Immutable.
	o         *HTTPOptions
	client    *http.Client
	addresses []string // host:port, in the order in which they are tried

	// Owned by the goroutine of the poller: indexes into addresses.
	lastAnswered int
	shownAddress int // returned by where
}

func newHTTP(o *HTTPOptions, replica string, timeout time.Duration) *httpTransport {
	dialer := net.Dialer{}
	dial := o.Dial
	if dial == nil {
		dial = dialer.DialContext
	}
	t := &httpTransport{o: o, client: &http.Client{
		// A redirect would send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			// A port that drops packets must leave time for the next one.
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, timeout/3)
				defer cancel()
				conn, err := dial(ctx, network, address)
				if err != nil {
					return nil, &Error{Cause: Unreachable, Err: err}
				}
				return conn, nil
			},
			ResponseHeaderTimeout:  timeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableCompression:     true, // the limit counts uncompressed bytes
			MaxConnsPerHost:        1,
		},
	}}
	host, port, err := net.SplitHostPort(replica)
	if err == nil {
		t.addresses = []string{net.JoinHostPort(host, port)}
		return t
	}
	for _, port := range []string{MonitoringPort, httpPort} {
		t.addresses = append(t.addresses, net.JoinHostPort(strings.Trim(replica, "[]"), port))
	}
	return t
}

func (t *httpTransport) close() { t.client.CloseIdleConnections() }

func (t *httpTransport) where(query string) string { return t.url(t.shownAddress, query).String() }

func (t *httpTransport) url(port int, query string) *url.URL {
	page, raw, _ := strings.Cut(query, "?")
	return &url.URL{Scheme: "http", Host: t.addresses[port], Path: "/debug/" + page, RawQuery: raw}
}

// get implements transport. It tries the next port if one is unreachable or does not serve the
// page. Of several errors it returns the first that is not Unreachable, if there is one.
func (t *httpTransport) get(ctx context.Context, query string, read func(io.Reader, time.Time) error) error {
	var failed error
	for i := range t.addresses {
		port := (t.lastAnswered + i) % len(t.addresses)
		err := t.getPort(ctx, t.url(port, query), read)
		if err == nil {
			t.lastAnswered, t.shownAddress = port, port
			return nil
		}
		cause := causeOf(err)
		if failed == nil || causeOf(failed) == Unreachable && cause != Unreachable {
			failed, t.shownAddress = err, port
		}
		if cause != Unreachable && cause != NotServed || ctx.Err() != nil {
			break
		}
	}
	return failed
}

// getPort requests a page from one port.
func (t *httpTransport) getPort(ctx context.Context, u *url.URL, read func(io.Reader, time.Time) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return &Error{Cause: Unreachable, Err: err}
	}
	if err := t.authorize(request); err != nil {
		return err
	}
	response, err := t.client.Do(request)
	if err != nil {
		return unwrapURL(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return refusal(response)
	}
	clock, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		clock = time.Time{}
	}
	return read(response.Body, clock)
}

// authorize adds the token and the cluster to a request.
func (t *httpTransport) authorize(request *http.Request) error {
	request.Header.Set("Accept", "application/json")
	if t.o.ClusterID != "" {
		request.Header.Set("Clusterid", t.o.ClusterID)
	}
	if t.o.TokenFile == "" {
		return nil
	}
	if !t.o.Insecure && !ads.IsLoopback(request.URL.Hostname()) {
		return newError(Plaintext, "not sending the token over plain HTTP to another machine")
	}
	token, err := ads.ReadToken(t.o.TokenFile)
	if err != nil {
		return &Error{Cause: NoToken, Err: err}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// unwrapURL removes the URL from an error, because where returns it too.
func unwrapURL(err error) error {
	u, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}
	cause := causeOf(u)
	if u.Timeout() && cause != Unreachable {
		return newError(Slow, "no response in time")
	}
	if e, known := errors.AsType[*Error](u.Err); known {
		return e
	}
	return &Error{Cause: cause, Err: u.Err}
}

// refusal returns the error of a response whose status is not 200.
func refusal(response *http.Response) error {
	switch code := response.StatusCode; code {
	case http.StatusUnauthorized:
		return newError(Unauthorized, "HTTP 401: istiod does not recognize the client")
	case http.StatusForbidden:
		return newError(Forbidden, "HTTP 403: istiod does not allow the namespace of the client")
	case http.StatusNotFound:
		return newError(NotServed, "HTTP 404: the debug API is not served at this address")
	default:
		if code >= 300 && code < 400 {
			location := naming.Quote(response.Header.Get("Location"))
			return newError(NotAnswer, fmt.Sprintf("HTTP %d: not following a redirect to %s", code, location))
		}
		start, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		return newError(Refused, fmt.Sprintf("HTTP %d: %s", code, naming.Quote(string(start))))
	}
}
