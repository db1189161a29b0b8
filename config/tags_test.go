package config

import (
	"reflect"
	"testing"
)

// TestTags_Check shows that every tag check names a bound or a rule.
func TestTags_Check(t *testing.T) {
	var look func(path string, all []field)
	look = func(path string, all []field) {
		for _, f := range all {
			at, typ := element(join(path, f.key), f.typ)
			_, number := bounds()[f.check]
			if f.check != "" && !number && textRules()[f.check] == nil && fileRules()[f.check] == nil {
				t.Errorf("%s: check:%q names no bound and no rule", at, f.check)
			}
			if typ.Kind() == reflect.Struct {
				look(at, fieldsOf(typ))
			}
		}
	}
	look("", fieldsOf(reflect.TypeFor[Config]()))
}
