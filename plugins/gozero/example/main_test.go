package main

import (
	"context"
	"testing"

	"github.com/zeromicro/go-zero/core/proc"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example/exampletest"
)

// TestExample ends the server as SIGTERM would, after which go-zero ends the
// process too.
func TestExample(t *testing.T) {
	p := program()
	p.Serve = func(ctx context.Context, c *client.Client, at example.Place) error {
		stop := context.AfterFunc(ctx, func() {
			proc.WrapUp()
			proc.Shutdown()
		})
		defer stop()
		return serve(ctx, c, at)
	}
	exampletest.Try(t, p)
}
