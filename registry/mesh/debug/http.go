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

// transport sends requests to one replica. It is used by one goroutine.
type transport interface {
	// get requests one page, adsz or connections with its parameters, and passes the
	// response to read, with the clock of istiod if it has one. The error has a cause.
	get(ctx context.Context, query string, read func(body io.Reader, clock time.Time) error) error
	// where names the page for people.
	where(query string) string
	close()
}

// The ports at which istiod serves its debug interface. MonitoringPort, that of its
// metrics, serves its version and its time as well.
const (
	MonitoringPort = "15014"
	httpPort       = "8080"
)

// maxHeader bounds what istiod may send before the body.
const maxHeader = 64 << 10

// httpTransport reads the debug port of one replica.
type httpTransport struct {
	o            *HTTPOptions
	client       *http.Client
	addresses    []string // host:port, in the order in which they are tried
	lastAnswered int      // the one that answered last
	shownAddress int      // the one that where shows
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
			// A filtered port must leave time for the next one.
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
			MaxResponseHeaderBytes: maxHeader,
			DisableCompression:     true, // the limit counts what is read
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

// get tries the next port if one is unreachable or does not serve the page. Of
// several errors it returns the first that is not Unreachable.
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

func (t *httpTransport) authorize(request *http.Request) error {
	request.Header.Set("Accept", "application/json")
	if t.o.ClusterID != "" {
		request.Header.Set("Clusterid", t.o.ClusterID)
	}
	if t.o.TokenFile == "" {
		return nil
	}
	if !t.o.Insecure && !ads.IsLoopback(request.URL.Hostname()) {
		return newError(Plaintext, "the token is not sent over plain HTTP to another machine")
	}
	token, err := ads.ReadToken(t.o.TokenFile)
	if err != nil {
		return &Error{Cause: NoToken, Err: err}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// unwrapURL removes the URL of an error, which where shows.
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

func refusal(response *http.Response) error {
	switch code := response.StatusCode; code {
	case http.StatusUnauthorized:
		return newError(Unauthorized, "HTTP 401: istiod does not know the client")
	case http.StatusForbidden:
		return newError(Forbidden, "HTTP 403: istiod knows the client and does not allow its namespace")
	case http.StatusNotFound:
		return newError(NotServed, "HTTP 404: the debug API is not served there")
	default:
		if code >= 300 && code < 400 {
			return newError(NotAnswer, fmt.Sprintf("HTTP %d: a redirect to %s, not followed", code, naming.Quote(response.Header.Get("Location"))))
		}
		start, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		return newError(Refused, fmt.Sprintf("HTTP %d: %s", code, naming.Quote(string(start))))
	}
}
