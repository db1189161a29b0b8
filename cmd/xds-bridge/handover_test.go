package main

import (
	"strings"
	"testing"
)

// TestHandOver has two bridges of two owners claim one service. The one whose entries
// stand lets it go: at no time is there none.
func TestHandOver(t *testing.T) {
	t.Parallel()
	first, second := newWorld(t), newWorld(t)
	first.offer(orders, "10.0.0.1")
	second.offer(orders, "10.0.0.1")
	second.zkAt = first.zkAt
	file := first.config(fileOptions{bridge: quick})
	other := second.ownedBy("other", "")
	first.start(file)
	isInSync(t, file)
	second.start(other)
	eventually(t, "the other waits", func() bool {
		return strings.Contains(do(t, "why", "-f", other, "api.Orders").out, "conflict")
	})
	node := first.providers("api.Orders")[0]
	first.offer(orders)
	eventually(t, "the other's is alone", func() bool {
		names := first.providers("api.Orders")
		if len(names) == 0 {
			t.Error("there is none")
		}
		return len(names) == 1 && names[0] != node && !strings.HasSuffix(names[0], "x")
	})
}
