package admin_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A registry that says nothing for a day, because nothing changes, was heard
// all the time while it is connected.
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

// TestLastContact_Heard: a source that says when it was heard is believed.
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
