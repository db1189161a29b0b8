package metadata_test

import (
	"maps"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestRules(t *testing.T) {
	in := registry.Attributes{"env": "prod", "version": "v1", "k8s.io/app": "shop", "meshHostAddr": "a:1", "xdsb": "m"}
	for name, tc := range map[string]struct {
		rules metadata.Rules
		want  registry.Attributes
		left  bool
	}{
		"none":                     {want: in},
		"keep, and what is fixed":  {rules: metadata.Rules{Keep: []string{"env"}}, want: registry.Attributes{"env": "prod", "meshHostAddr": "a:1", "xdsb": "m"}},
		"drop by pattern":          {rules: metadata.Rules{Drop: []string{"k8s.io/*", "mesh*"}}, want: registry.Attributes{"env": "prod", "version": "v1", "meshHostAddr": "a:1", "xdsb": "m"}},
		"drop wins over keep":      {rules: metadata.Rules{Keep: []string{"*"}, Drop: []string{"env", "version", "k8s.io/app"}}, want: registry.Attributes{"meshHostAddr": "a:1", "xdsb": "m"}},
		"rename":                   {rules: metadata.Rules{Keep: []string{"env"}, Rename: map[string]string{"env": "stage"}}, want: registry.Attributes{"stage": "prod", "meshHostAddr": "a:1", "xdsb": "m"}},
		"rename onto another":      {rules: metadata.Rules{Drop: []string{"k8s.io/app"}, Rename: map[string]string{"env": "version"}}, want: registry.Attributes{"version": "v1", "meshHostAddr": "a:1", "xdsb": "m"}, left: true},
		"values by the new name":   {rules: metadata.Rules{Keep: []string{"env"}, Rename: map[string]string{"env": "stage"}, Values: []metadata.ValueRule{{"stage", "prod", "live"}, {"stage", "live", "x"}}}, want: registry.Attributes{"stage": "live", "meshHostAddr": "a:1", "xdsb": "m"}},
		"a value that is left out": {rules: metadata.Rules{Keep: []string{"env"}, Values: []metadata.ValueRule{{Key: "env", From: "prod"}}}, want: registry.Attributes{"meshHostAddr": "a:1", "xdsb": "m"}},
		"add, in place of another": {rules: metadata.Rules{Keep: []string{"env"}, Add: map[string]string{"env": "mesh", "by": "bridge"}}, want: registry.Attributes{"env": "mesh", "by": "bridge", "meshHostAddr": "a:1", "xdsb": "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.rules.Check(); err != nil {
				t.Fatal(err)
			}
			before := maps.Clone(in)
			s := &registry.Service{Name: "a", Attributes: in, Endpoints: []registry.Endpoint{{Host: "h", Attributes: in}, {Host: "i"}}}
			got, err := tc.rules.Apply(s)
			if (err != nil) != tc.left {
				t.Errorf("left out: %v", err)
			}
			whole := maps.Clone(got.Attributes)
			maps.Copy(whole, got.Endpoints[0].Attributes)
			if !maps.Equal(got.Attributes, tc.want) || !maps.Equal(whole, tc.want) {
				t.Errorf("service %v\nendpoint %v\nwant %v", got.Attributes, got.Endpoints[0].Attributes, tc.want)
			}
			if !maps.Equal(in, before) || len(got.Endpoints[1].Attributes) > 0 {
				t.Error("the input was changed, or an endpoint without attributes got some")
			}
		})
	}
}

func TestRulesThatCannotBeFollowed(t *testing.T) {
	for name, r := range map[string]metadata.Rules{
		"a pattern of nothing": {Keep: []string{""}},
		"two stars":            {Drop: []string{"a*b*"}},
		"another's mark":       {Add: map[string]string{"xdsb": "x"}},
		"a name for the mark":  {Rename: map[string]string{"a": "xdsb"}},
		"the unit of weights":  {Rename: map[string]string{"meshHostAddr": "a"}},
		"a value of the mark":  {Values: []metadata.ValueRule{{Key: "xdsb"}}},
		"a key that is no key": {Add: map[string]string{"": "x"}},
	} {
		if r.Check() == nil {
			t.Errorf("%s: no fault", name)
		}
	}
}
