package dubbogo_test

import (
	"testing"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/metadata"
	"dubbo.apache.org/dubbo-go/v3/metadata/info"
	"dubbo.apache.org/dubbo-go/v3/metadata/mapping"
	"dubbo.apache.org/dubbo-go/v3/metadata/report"
	gxset "github.com/dubbogo/gost/container/set"
)

// elsewhere is the metadata report of another registry, and its factory. It has one application.
type elsewhere struct{}

func (elsewhere) CreateMetadataReport(*common.URL) report.MetadataReport { return elsewhere{} }

func (elsewhere) GetAppMetadata(string, string) (*info.MetadataInfo, error)   { return nil, nil } //nolint:nilnil // nobody asks
func (elsewhere) PublishAppMetadata(string, string, *info.MetadataInfo) error { return nil }
func (elsewhere) RegisterServiceAppMapping(string, string, string) error      { return nil }
func (elsewhere) RemoveServiceAppMappingListener(string, string) error        { return nil }

func (elsewhere) GetServiceAppMapping(of, _ string, _ mapping.MappingListener) (*gxset.HashSet, error) {
	if of != "api.Mapped" {
		return gxset.NewSet(), nil
	}
	return gxset.NewSet("application"), nil
}

// TestMetadata_OtherReport: a registry of this package has no metadata report. dubbo-go would query
// any report.
func TestMetadata_OtherReport(t *testing.T) {
	extension.SetMetadataReportFactory("elsewhere", func() report.MetadataReportFactory { return elsewhere{} })
	for _, protocol := range []string{"elsewhere", "xdsbridge"} {
		o := metadata.NewReportOptions(metadata.WithRegistryId(protocol), metadata.WithProtocol(protocol), metadata.WithAddress("192.0.2.1:1"))
		if err := o.Init(); err != nil {
			t.Fatal(err)
		}
	}
	u := parsed(t, "tri://10.0.0.9/api.Mapped?interface=api.Mapped&version=2&side=consumer")
	for range 20 {
		got, err := extension.GetGlobalServiceNameMapping().Get(u, nil)
		if err != nil || got.Size() != 1 || !got.Contains("application") {
			t.Fatalf("%v, %v", got, err)
		}
	}
}
