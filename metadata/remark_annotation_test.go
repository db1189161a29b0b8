package metadata_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// TestMarkOf_Annotation: the head of a ServiceEntry has its mark among annotations.
func TestMarkOf_Annotation(t *testing.T) {
	t.Parallel()
	mark := metadata.NewMark("me", "b")
	for value, bare := range map[string]string{
		`{"host":"a","annotations":{"xds-bridge/mark":"` + mark.String() + `","xds-bridge/name":"a"}}`:          `{"host":"a","annotations":{"xds-bridge/name":"a"}}`,
		`{"annotations":{"xds-bridge.attribute/a":"b","xds-bridge/mark":"` + mark.String() + `"},"keys":["k"]}`: `{"annotations":{"xds-bridge.attribute/a":"b"},"keys":["k"]}`,
		`{"annotations":{"xds-bridge/mark":"` + mark.String() + `"}}`:                                           `{"annotations":{}}`,
	} {
		e := registry.Entry{Value: value}
		if m, err := metadata.MarkOf(e); err != nil || m != mark {
			t.Errorf("MarkOf(%s) = %v, %v", value, m, err)
		}
		if got := metadata.Bare(e).Value; got != bare {
			t.Errorf("Bare(%s) = %s, want %s", value, got, bare)
		}
		other := metadata.NewMark("bank", "b")
		if m, err := metadata.MarkOf(metadata.Remark(e, func(metadata.Mark) metadata.Mark { return other })); err != nil || m != other {
			t.Errorf("the mark of %s becomes %v, %v", value, m, err)
		}
	}
}
