// Command xds-bridge keeps service registries in step with a mesh, and says
// why each service is where it is.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker; empty, the build information has it.
var version string

func main() {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before anything else: it ends whoever does not take it
	ctx, stop := interruptible(context.Background(), os.Exit)
	code := execute(ctx, &cli{out: os.Stdout, err: os.Stderr, env: os.LookupEnv, hup: hup}, os.Args[1:])
	stop()
	os.Exit(code)
}
