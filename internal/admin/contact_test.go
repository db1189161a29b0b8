package admin_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A connected registry without changes for a day still has a recent contact.
func TestLastContact(t *testing.T) {
	yesterday := time.Now().Add(-24 * time.Hour)
	for _, connected := range []bool{true, false} {
		state := func() admin.SourceState { return admin.SourceState{Connected: connected, LastContact: yesterday} }
		s, err := admin.New(t.Context(), admin.Options{Inputs: []admin.Input{{Name: "zk", Table: registry.NewTable(), State: state}}})
		if err != nil {
			t.Fatal(err)
		}
		d := s.Document(t.Context())
		if heard := d.Sources[0].LastContact; heard.Equal(yesterday) == connected {
			t.Errorf("connected %t: last heard at %s, now it is %s", connected, heard, d.Time)
		}
	}
}

// TestLastContact_Heard shows that the time in Heard is the last contact.
func TestLastContact_Heard(t *testing.T) {
	before := time.Now().Add(-30 * time.Second)
	state := func() admin.SourceState { return admin.SourceState{Connected: true, Heard: before} }
	s, err := admin.New(t.Context(), admin.Options{Inputs: []admin.Input{{Name: "kube", Table: registry.NewTable(), State: state}}})
	if err != nil {
		t.Fatal(err)
	}
	if heard := s.Document(t.Context()).Sources[0].LastContact; !heard.Equal(before) {
		t.Errorf("LastContact = %s, want %s", heard, before)
	}
}

// TestOverview_Connections shows that connections of sources and targets are computed alike.
func TestOverview_Connections(t *testing.T) {
	lost := time.Now().Add(-time.Hour)
	for name, tt := range map[string]struct {
		state admin.TargetState
		want  admin.Connection // without LastContact: now
	}{
		"connected":       {admin.TargetState{Connected: true, Since: lost, Reconnects: 2}, admin.Connection{Up: true, Reconnects: 2}},
		"connected, idle": {admin.TargetState{Connected: true, Since: lost, Heard: lost}, admin.Connection{Up: true, LastContact: lost}},
		"lost":            {admin.TargetState{Since: lost, Reconnects: 1}, admin.Connection{LastContact: lost, Reconnects: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			source := func() admin.SourceState {
				return admin.SourceState{Connected: tt.state.Connected, LastContact: tt.state.Since, Heard: tt.state.Heard, Reconnects: tt.state.Reconnects}
			}
			s, err := admin.New(t.Context(), admin.Options{
				Inputs:  []admin.Input{{Name: "zk", Kind: "zookeeper", Table: registry.NewTable(), State: source}},
				Targets: []admin.Target{{Name: "mesh (:15031)", Registry: "mesh", Listen: ":15031", Kind: "mesh", Loop: &loop{st: inSync()}, State: func() admin.TargetState { return tt.state }}},
			})
			if err != nil {
				t.Fatal(err)
			}
			o := s.Overview()
			want := tt.want
			want.LastContact = cmp.Or(want.LastContact, o.Time)
			if got := o.Sources[0].Connection; got != want {
				t.Errorf("source: %+v, want %+v", got, want)
			}
			if got := o.Targets[0]; got.Connection != want || got.Registry != "mesh" || got.Listen != ":15031" {
				t.Errorf("target: %+v, want %+v", got, want)
			}
		})
	}
}
