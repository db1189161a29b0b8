package ads_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

func TestBrief(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"dial tcp 127.0.0.1:1: connect: connection refused": status.Error(codes.Unavailable,
			`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`),
		"authentication handshake failed: x509: certificate has expired": status.Error(codes.Unavailable,
			`connection error: desc = "transport: authentication handshake failed: x509: certificate has expired"`),
		"error reading server preface: EOF":        status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`),
		"PermissionDenied: not allowed":            status.Error(codes.PermissionDenied, "not allowed"),
		"token: open /t: no such file":             status.Error(codes.Unavailable, "token: open /t: no such file"),
		"no response within 10s":                   errors.New("no response within 10s"),
		"read: rpc error: code = Aborted desc = x": fmt.Errorf("read: %w", status.Error(codes.Aborted, "x")),
	} {
		got := ads.Brief(err)
		if got.Error() != want || status.Code(got) != status.Code(err) {
			t.Errorf("Brief(%v) = %q of code %s, want %q of code %s", err, got, status.Code(got), want, status.Code(err))
		}
	}
	if ads.Brief(nil) != nil {
		t.Error("Brief(nil) is an error")
	}
}
