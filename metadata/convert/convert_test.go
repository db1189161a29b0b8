package convert_test

import (
	"math"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
)

// TestWeight_BothDirections shows the weight of one format in another.
func TestWeight_BothDirections(t *testing.T) {
	for name, tc := range map[string]struct {
		scale convert.Scale
		share uint32
		want  float64
		back  uint32
	}{
		"Nacos: normal":                 {convert.Nacos(), 100, 1, 100},
		"Nacos: not reported":           {convert.Nacos(), 0, 1, 100},
		"Nacos: a fraction":             {convert.Nacos(), 25, 0.25, 25},
		"Nacos: no binary fraction":     {convert.Nacos(), 29, 0.29, 29},
		"Nacos: the least":              {convert.Nacos(), 1, 0.01, 1},
		"Nacos: the most":               {convert.Nacos(), math.MaxUint32, 10_000, 1_000_000},
		"Kratos: normal":                {convert.Kratos(), 100, 100, 100},
		"Kratos: half":                  {convert.Kratos(), 50, 50, 50},
		"Kratos: the least":             {convert.Kratos(), 1, 1, 1},
		"Hertz and Kitex: normal":       {convert.CloudWeGo(), 100, 10, 100},
		"Hertz and Kitex: a quarter":    {convert.CloudWeGo(), 25, 3, 30},
		"Hertz and Kitex: never none":   {convert.CloudWeGo(), 1, 1, 10},
		"Hertz and Kitex: three times":  {convert.CloudWeGo(), 300, 30, 300},
		"istio: 1 is the normal one":    {convert.Nacos(), convert.FromMesh(1), 1, 100},
		"istio: 3":                      {convert.CloudWeGo(), convert.FromMesh(3), 30, 300},
		"istio: not reported":           {convert.Kratos(), convert.FromMesh(0), 100, 100},
		"istio: more than sums allow":   {convert.Kratos(), convert.FromMesh(math.MaxUint32), 1_000_000, 1_000_000},
		"Dubbo's 100 is the normal one": {convert.Nacos(), 100, 1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.scale.Of(tc.share); got != tc.want {
				t.Errorf("%d is %v, want %v", tc.share, got, tc.want)
			}
			if got := tc.scale.Share(tc.want); got != tc.back {
				t.Errorf("%v is a share of %d, want %d", tc.want, got, tc.back)
			}
		})
	}
	for name, weight := range map[string]float64{"nothing": 0, "less": -1, "no number": math.NaN()} {
		if got := convert.Nacos().Share(weight); got != 0 {
			t.Errorf("%s is a share of %d", name, got)
		}
	}
	if got := convert.Nacos().Share(math.Inf(1)); got != math.MaxUint32 {
		t.Errorf("without end is %d", got)
	}
	if got := convert.Nacos().Share(0.0001); got != 1 {
		t.Errorf("more than nothing is %d", got)
	}
}

func TestSchemes(t *testing.T) {
	for protocol, want := range map[string]string{
		"tri": "grpc", "GRPC": "grpc", "grpcs": "grpcs", "http": "http", "rest": "http", "HTTP2": "http", "https": "https", "dubbo": "dubbo", "thrift": "thrift",
	} {
		if got := convert.Scheme(protocol); got != want {
			t.Errorf("%s is %s, want %s", protocol, got, want)
		}
	}
}

func TestLocalities(t *testing.T) {
	for locality, want := range map[string][2]string{
		"": {}, "eu": {"eu", ""}, "eu/a": {"eu", "a"}, "eu/a/r1": {"eu", "a"},
	} {
		region, zone := convert.RegionZone(locality)
		if region != want[0] || zone != want[1] {
			t.Errorf("%q is %q %q", locality, region, zone)
		}
	}
	for pair, want := range map[[2]string]string{
		{}: "", {"", "a"}: "", {"eu", ""}: "eu", {"eu", "a"}: "eu/a", {"eu", "a/b"}: "eu",
	} {
		if got := convert.Locality(pair[0], pair[1]); got != want {
			t.Errorf("%q is %q, want %q", pair, got, want)
		}
	}
}
