// Command xds-bridge keeps service registries in step with a mesh, and says
// why each service is where it is.
package main

import (
	"context"
	"os"
)

// version is set by the linker; empty, the build information has it.
var version string

func main() {
	ctx, stop := interruptible(context.Background(), os.Exit)
	code := execute(ctx, &cli{out: os.Stdout, err: os.Stderr, env: os.LookupEnv}, os.Args[1:])
	stop()
	os.Exit(code)
}
