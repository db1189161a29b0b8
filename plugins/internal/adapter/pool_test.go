package adapter_test

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

const elsewhere = "zookeeper://192.0.2.1:2181?identity=one"

// continues reports whether a client is not closed.
func continues(c *client.Client) bool { return !errors.Is(c.Status().Err, client.ErrClosed) }

func TestPool_SameURL(t *testing.T) {
	pool := new(adapter.Pool)
	open := func(url string) *client.Client {
		t.Helper()
		c, err := pool.Open(url, client.Options{}, all.Kinds()...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	one, other := open(elsewhere), open(elsewhere+"-more")
	if open(elsewhere) != one || one == other {
		t.Error("clients are distinguished by their URLs")
	}
	_ = one.Close()
	again := open(elsewhere)
	if again == one || !continues(again) || !continues(other) {
		t.Error("one that was closed is replaced")
	}
	mine := open(elsewhere + "-mine")
	own := new(adapter.Pool)
	name := own.Add(mine)
	if got, err := own.Open(name, client.Options{}); got != mine || err != nil {
		t.Errorf("Open(%s) = %p, %v, want what was added", name, got, err)
	}
	own.Close()
	if !continues(mine) {
		t.Error("one that was added is closed with the others")
	}
	pool.Close()
	if continues(again) || continues(other) {
		t.Error("one continues after all were closed")
	}
	if _, err := pool.Open("zookeeper://192.0.2.1:2181?color=red", client.Options{}, all.Kinds()...); err == nil {
		t.Error("a bad URL is no error")
	}
}
