package main

import (
	"strconv"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/internal/porttest"
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

// A provider that cannot be written is not a difference: it is as it would be after any run.
func TestPlan_NothingToWrite(t *testing.T) {
	t.Parallel()
	w := newTwenty(t)
	if err := w.zk.Put("/a/microservices/bad/1", []byte(`{"id":"1","name":"bad","version":"v1","endpoints":["grpc://127.0.0.1:9000"]}`)); err != nil {
		t.Fatal(err)
	}
	do(t, "plan", "-f", w.file).want(t, exitFindings, "‼ unwritable  kratos:/microservices/bad", "loopback address",
		"\n20 to create, 0 to update, 0 to delete, 0 held by the guard, 0 in conflict, 1 service that cannot be written.\n")
	w.start(w.file)
	eventually(t, "all others are written", func() bool { return w.written() == 20 })
	do(t, "plan", "-f", w.file).want(t, exitOK, "\nNothing differs, 1 service that cannot be written.\n")
}

// A registry at which nobody listens will not listen within any timeout.
func TestPlan_RefusedConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	w.replaced(file, strconv.Quote(w.zkAt), strconv.Quote(porttest.Address(t)))
	do(t, "plan", "--timeout", "10m", "-f", file).want(t, exitUnreachable, "nothing was compared: ", "target zk: ", "connection refused")
	file = w.config(fileOptions{})
	w.replaced(file, strconv.Quote(w.xds), strconv.Quote(porttest.Address(t)))
	do(t, "plan", "--timeout", "10m", "-f", file).want(t, exitUnreachable, "nothing was compared: source mesh: ", "connection refused")
}
