package zookeeper_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func TestID(t *testing.T) {
	t.Parallel()
	id := func(t *testing.T, client *zookeeper.Client, offer string) string {
		t.Helper()
		got, err := client.ID(t.Context(), offer, zookeeper.Open)
		must(t, err)
		return got
	}
	t.Run("it is made once, and stays", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		client := dial(t, server)
		if got := id(t, client, ""); got != "" {
			t.Errorf("ID without an offer = %q, want none", got)
		}
		if paths := server.Paths("/"); len(paths) != 0 {
			t.Errorf("paths after ID without an offer = %q, want none", paths)
		}
		for _, offer := range []string{"first", "second", ""} {
			if got := id(t, client, offer); got != "first" {
				t.Errorf("ID with offer %q = %q, want first", offer, got)
			}
		}
	})
	t.Run("a race of many ends with one", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		got := make([]string, 16)
		var running sync.WaitGroup
		for i := range got {
			client := dial(t, server)
			running.Go(func() { got[i], _ = client.ID(t.Context(), "of-"+strconv.Itoa(i), zookeeper.Open) })
		}
		running.Wait()
		for _, g := range got {
			if g == "" || g != got[0] {
				t.Fatalf("IDs = %q, want one for all", got)
			}
		}
	})
	t.Run("one that is empty or may not be made is refused", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		must(t, server.Put(zookeeper.IDNode, []byte(" \n")))
		if _, err := dial(t, server).ID(t.Context(), "x", zookeeper.Open); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("ID of an empty node = %v, want a refusal", err)
		}
		locked := serve(t)
		must(t, locked.SetACL("/", zkfake.WorldACL(zkfake.PermRead)))
		if _, err := dial(t, locked).ID(t.Context(), "x", zookeeper.Open); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("ID where nothing may be created = %v, want a refusal", err)
		}
	})
}
