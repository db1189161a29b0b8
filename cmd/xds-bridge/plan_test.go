package main

import (
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// What may not be read will not be read within any timeout.
func TestPlan_DeniedRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	for _, one := range []struct {
		path string
		code int
	}{{"/dubbo/api.Orders/providers", exitFindings}, {"/dubbo", exitUnreachable}} {
		if err := w.zk.SetACL(one.path, zkfake.WorldACL(zkfake.PermCreate)); err != nil {
			t.Fatal(err)
		}
		do(t, "plan", "--timeout", "10m", "-f", file).want(t, one.code, "refused", "check user, passwordFile and the ACL")
	}
}
