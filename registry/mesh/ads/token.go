package ads

import (
	"bytes"
	"context"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// token is a bearer token in a file, read at each call.
type token struct {
	file      string
	plaintext bool // may go over plaintext
}

var _ credentials.PerRPCCredentials = token{}

// GetRequestMetadata reads the file. A file that cannot be used is unavailable
// and not unauthenticated: it may be about to be replaced.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	content, err := os.ReadFile(t.file)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "token: %v", err)
	}
	value := bytes.TrimSpace(content)
	if len(value) == 0 {
		return nil, status.Errorf(codes.Unavailable, "token: %s is empty", t.file)
	}
	for _, b := range value {
		if b <= ' ' || b > '~' {
			return nil, status.Errorf(codes.Unavailable, "token: %s holds more than a token", t.file)
		}
	}
	return map[string]string{"authorization": "Bearer " + string(value)}, nil
}

// RequireTransportSecurity makes gRPC refuse to send the token over plaintext.
func (t token) RequireTransportSecurity() bool { return !t.plaintext }
