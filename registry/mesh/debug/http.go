package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
)

// A transport asks one replica. It is used by one goroutine.
type transport interface {
	// ask puts one question, adsz or connections with what follows a `?`, and
	// hands the answer to read, with the clock of istiod where it tells it. The
	// error has a cause.
	ask(ctx context.Context, query string, read func(body io.Reader, clock time.Time) error) error
	// where names the question for people.
	where(query string) string
	close()
}

// maxHeader is the most that istiod may send before the body.
const maxHeader = 64 << 10

// httpTransport reads the debug port of one replica.
type httpTransport struct {
	o         *HTTPOptions
	client    *http.Client
	addresses []string // host:port, in the order in which they are tried
	at        int      // the one that answered last
	shown     int      // the one that the last question is to be remembered by
}

func newHTTP(o *HTTPOptions, replica string, timeout time.Duration) *httpTransport {
	dialer := net.Dialer{}
	dial := o.Dial
	if dial == nil {
		dial = dialer.DialContext
	}
	t := &httpTransport{o: o, client: &http.Client{
		// A redirect would carry the token to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			// A port that is filtered must leave time for the next one.
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, timeout/3)
				defer cancel()
				conn, err := dial(ctx, network, address)
				if err != nil {
					return nil, &causedError{Unreachable, err}
				}
				return conn, nil
			},
			TLSClientConfig:        o.TLS,
			TLSHandshakeTimeout:    timeout,
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
	for _, port := range o.Ports {
		t.addresses = append(t.addresses, net.JoinHostPort(strings.Trim(replica, "[]"), strconv.Itoa(int(port))))
	}
	return t
}

func (t *httpTransport) close() { t.client.CloseIdleConnections() }

func (t *httpTransport) where(query string) string { return t.url(t.shown, query).String() }

func (t *httpTransport) url(port int, query string) *url.URL {
	u := &url.URL{Scheme: "http", Host: t.addresses[port]}
	if t.o.TLS != nil {
		u.Scheme = "https"
	}
	page, raw, _ := strings.Cut(query, "?")
	u.Path, u.RawQuery = strings.TrimSuffix(t.o.Path, "/")+"/"+page, raw
	return u
}

// ask tries the next port where one cannot be reached or does not serve the
// page; of several failures the most telling is returned.
func (t *httpTransport) ask(ctx context.Context, query string, read func(io.Reader, time.Time) error) error {
	var failed error
	for i := range t.addresses {
		port := (t.at + i) % len(t.addresses)
		err := t.askPort(ctx, t.url(port, query), read)
		if err == nil {
			t.at, t.shown = port, port
			return nil
		}
		cause := causeOf(err)
		if failed == nil || causeOf(failed) == Unreachable && cause != Unreachable {
			failed, t.shown = err, port
		}
		if cause != Unreachable && cause != NotServed || ctx.Err() != nil {
			break
		}
	}
	return failed
}

func (t *httpTransport) askPort(ctx context.Context, u *url.URL, read func(io.Reader, time.Time) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return &causedError{Unreachable, err}
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
	if t.o.TLS == nil && !t.o.Insecure && !loopback(request.URL.Hostname()) {
		return errorOf(Plaintext, "the token is not sent over plain HTTP to another machine")
	}
	token, err := readToken(t.o.TokenFile)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// unwrapURL takes the URL away that the client puts in front: where says it.
func unwrapURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		cause := causeOf(u)
		if u.Timeout() && cause != Unreachable {
			return errorOf(Slow, "no answer in time")
		}
		return &causedError{cause, u.Err}
	}
	return err
}

func refusal(response *http.Response) error {
	switch code := response.StatusCode; code {
	case http.StatusUnauthorized:
		return errorOf(Unauthorized, "HTTP 401: istiod does not know who asks")
	case http.StatusForbidden:
		return errorOf(Forbidden, "HTTP 403: istiod knows who asks and does not allow that namespace")
	case http.StatusNotFound:
		return errorOf(NotServed, "HTTP 404: the debug API is not served there")
	default:
		if code >= 300 && code < 400 {
			return errorOf(NotAnswer, fmt.Sprintf("HTTP %d: a redirect to %s, not followed", code, naming.Quote(response.Header.Get("Location"))))
		}
		start, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		return errorOf(Refused, fmt.Sprintf("HTTP %d: %s", code, naming.Quote(string(start))))
	}
}

// maxToken is more than any service account token has.
const maxToken = 64 << 10

// readToken returns the token of a file without what surrounds it. The file is
// read each time: the kubelet replaces it behind a symbolic link, and the
// cheapest way to see that is to look.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", &causedError{NoToken, err}
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", &causedError{NoToken, err}
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		err = errors.New("is empty")
	case len(text) > maxToken:
		err = errors.New("is larger than a token can be")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		err = errors.New("holds something else than a token")
	default:
		return token, nil
	}
	return "", &causedError{NoToken, &os.PathError{Op: "read", Path: naming.Quote(path), Err: err}}
}

// loopback reports whether a host is this machine for certain.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}
