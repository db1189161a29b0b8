package zookeeper_test

import (
	"errors"
	"strings"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestClient_ServerCodes: what the library calls an unknown error has its name and remedy.
func TestClient_ServerCodes(t *testing.T) {
	for name, tt := range map[string]struct {
		code    int32
		want    []string
		is      error
		refused bool
	}{
		"a quota":                   {-125, []string{"QUOTAEXCEEDED (-125)", "setquota"}, zookeeper.ErrQuota, true},
		"authentication":            {-124, []string{"SESSIONCLOSEDREQUIRESASLAUTH (-124)", "set user and passwordFile"}, zookeeper.ErrAuthRequired, true},
		"throttling":                {-127, []string{"THROTTLEDOP (-127)", "overloaded"}, nil, false},
		"a server without a quorum": {-119, []string{"NOTREADONLY (-119)", "quorum"}, nil, false},
		"an older server":           {-6, []string{"UNIMPLEMENTED (-6)", "older"}, nil, true},
		"one of a later version":    {-999, []string{"code -999"}, nil, false},
		"one that the library has":  {-102, []string{"not authenticated", "ACL"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			client := dial(t, server)
			to := target(t, client)
			server.SetFault(func(r zkfake.Request) zkfake.Fault {
				if r.Op == zkfake.OpMulti {
					return zkfake.Fault{Code: tt.code}
				}
				return zkfake.Fault{}
			})
			err := to.Write(t.Context(), creation(ours(1, 1, 1)))
			if err == nil || strings.Contains(err.Error(), "unknown error") {
				t.Fatalf("Write = %v, want a name", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Write = %v, want %q", err, want)
				}
			}
			if errors.Is(err, registry.ErrRefused) != tt.refused || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("Write = %v, want refused: %t, to be %v", err, tt.refused, tt.is)
			}
		})
	}
}
