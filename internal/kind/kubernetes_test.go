package kind

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// TestKubernetesConnection_State: without a watch the target is written to, and what
// others change is not seen. Without a server neither works.
func TestKubernetesConnection_State(t *testing.T) {
	now := time.Now()
	refused, down := fmt.Errorf("watch: %w", registry.ErrRefused), errors.New("down")
	for name, tt := range map[string]struct {
		calls, watch kubernetes.State
		want         admin.TargetState
	}{
		"well":              {kubernetes.State{At: now}, kubernetes.State{At: now}, admin.TargetState{Connected: true}},
		"a directory":       {kubernetes.State{At: now}, kubernetes.State{}, admin.TargetState{Connected: true}},
		"may not watch":     {kubernetes.State{At: now}, kubernetes.State{At: now, Err: refused}, admin.TargetState{Connected: true, Unwatched: "watch: refused"}},
		"down, no call yet": {kubernetes.State{At: now}, kubernetes.State{At: now, Err: down}, admin.TargetState{Connected: true, LastError: "down", Unwatched: "down"}},
		"down":              {kubernetes.State{At: now, Err: down}, kubernetes.State{At: now, Err: down}, admin.TargetState{LastError: "down", Unwatched: "down"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &kubernetesConnection{name: "mesh", where: "https://kubernetes"}
			c.states.Store(&kubernetesStates{func() kubernetes.State { return tt.calls }, func() kubernetes.State { return tt.watch }})
			got := c.State()
			if got.Connected != tt.want.Connected || got.LastError != tt.want.LastError || got.Unwatched != tt.want.Unwatched {
				t.Errorf("state() = %+v, want %+v", got, tt.want)
			}
		})
	}
}
