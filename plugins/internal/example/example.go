// Package example has what the examples of the plugins share: their command line and the loop that
// calls. Each example's main.go shows how to publish a server of its framework, and how a client
// finds one.
package example

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
)

// Program is one example.
type Program struct {
	// Serve runs a server until ctx ends, and then until consumers no longer call it.
	Serve func(ctx context.Context, c *client.Client, at Place) error

	// Dial returns the function that calls a service.
	Dial func(c *client.Client, service string) (Call, error)

	// Open makes the client, with the framework's own formats if it has any.
	Open func(url string, o client.Options, kinds ...client.Kind) (*client.Client, error)

	Log *slog.Logger // of the framework

	Describes bool // Serve accepts a weight and tags
}

// Place is a service to serve, and where.
type Place struct {
	Service string
	Address string // host:port

	Weight int // 0: the framework's own
	Tags   map[string]string
}

// tagInto adds KEY=VALUE to tags.
func tagInto(tags map[string]string) func(string) error {
	return func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("must be KEY=VALUE")
		}
		tags[key] = value
		return nil
	}
}

func (p Place) described() bool { return p.Weight != 0 || len(p.Tags) > 0 }

// Answer is the answer of every server.
func (p Place) Answer() string { return "hello from " + p.Address }

// Call calls a service and returns its answer.
type Call func(ctx context.Context) (string, error)

const usage = `usage:
  example -registry URL [-listen HOST:PORT] [-weight N] [-tag KEY=VALUE] serve SERVICE
  example -registry URL [-every 1s] call SERVICE

URL is as in client.Open. $NAME and ${NAME} are replaced by environment
variables, for example zookeeper://127.0.0.1:2181?identity=$HOSTNAME`

// Main runs an example with the command line of the process, until the process is told to
// terminate.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // no deferred function matters
	}
}

func (p Program) run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), usage) // an error could not be reported
		flags.PrintDefaults()
	}
	registry := flags.String("registry", os.Getenv("REGISTRY"), "`URL` of the registry; default: $REGISTRY")
	at := Place{Tags: make(map[string]string)}
	flags.StringVar(&at.Address, "listen", "127.0.0.1:8000", "address on which serve listens")
	flags.IntVar(&at.Weight, "weight", 0, "weight that serve publishes; 0: the framework's own")
	flags.Func("tag", "`KEY=VALUE` that serve publishes", tagInto(at.Tags))
	every := flags.Duration("every", time.Second, "interval of the calls")
	state := flags.String("state", "", "state `file`; empty: none")
	drain := flags.Duration("drain", time.Second, "how long serve continues when it is no longer visible")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if at.described() && !p.Describes {
		return errors.New("-weight, -tag: this framework passes neither to its registry")
	}
	o := client.Options{StateFile: *state, DrainDelay: *drain, Log: p.Log}
	c, err := p.Open(os.ExpandEnv(*registry), o, all.Kinds()...)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	at.Service = flags.Arg(1)
	switch command := flags.Arg(0); {
	case flags.NArg() == 2 && command == "serve":
		return p.Serve(ctx, c, at)
	case flags.NArg() == 2 && command == "call":
		return p.call(ctx, c, at.Service, caller{out, *every})
	default:
		return errors.New(usage)
	}
}

// caller says how often a service is called and where its answers are written.
type caller struct {
	out   io.Writer
	every time.Duration
}

// timeout bounds one call.
const timeout = 10 * time.Second

func (p Program) call(ctx context.Context, c *client.Client, service string, to caller) error {
	call, err := p.Dial(c, service)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(to.every)
	defer ticker.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, timeout)
		answer, err := call(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			_, _ = fmt.Fprintf(to.out, "failed: %v\n", err)
		default:
			_, _ = fmt.Fprintln(to.out, answer)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
