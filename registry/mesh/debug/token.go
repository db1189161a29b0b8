package debug

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// maxToken is more than any service account token has.
const maxToken = 64 << 10

// readToken returns the token of a file without what surrounds it. The file is
// read each time: the kubelet replaces it behind a symbolic link, and the
// cheapest way to see that is to look.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", &fault{NoToken, err}
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", &fault{NoToken, err}
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
	return "", &fault{NoToken, &os.PathError{Op: "read", Path: naming.Quote(path), Err: err}}
}

// loopback reports whether a host is this machine for certain.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}
