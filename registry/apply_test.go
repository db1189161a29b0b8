package registry_test

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

func TestTableApply(t *testing.T) {
	table := registry.NewTable()
	reader := table.Reader()
	<-reader.Wake()
	table.Put(&registry.Service{Name: "old"})
	reader.Drain()
	<-reader.Wake()
	table.Apply([]*registry.Service{{Name: "new"}}, []registry.Name{"old", "never heard of"})
	<-reader.Wake()
	rows := reader.Drain().Rows
	if len(rows) != 2 || rows["new"].Service == nil || rows["old"].Service != nil || rows["old"].Found {
		t.Errorf("rows %+v", rows)
	}
	table.Apply([]*registry.Service{{Name: "new"}}, []registry.Name{"old"})
	select {
	case <-reader.Wake():
		t.Error("a message that changes nothing wakes readers")
	default:
	}
	table.Stale(errors.New("away"))
	table.Apply(nil, []registry.Name{"new"})
	if row, ok := reader.Drain().Rows["new"]; !ok || !row.Found {
		t.Errorf("what is told while stale counts as found: %+v", row)
	}
}
