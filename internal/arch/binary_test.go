package arch_test

import (
	"os"
	"regexp"
	"testing"
)

// TestBinary_Imports requires that no linked package calls methods by names that are only known at
// run time, because the linker would then keep every method of every type. With the tags of make
// build there is only cobra's call, which the linker recognizes as unused.
func TestBinary_Imports(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tags := regexp.MustCompile(`(?m)^tags := (\S+)$`).FindSubmatch(text)
	if tags == nil {
		t.Fatal("the Makefile sets no tags")
	}
	for _, p := range list(t, "-deps", "-tags", string(tags[1]), "./cmd/xds-bridge") {
		switch p {
		case "html/template", "golang.org/x/net/trace", "net/http/pprof", module + "internal/conformance", module + "plugins/client":
			t.Errorf("%s is linked", p)
		}
	}
}
