// Package program is what these have in common: applications of a framework
// with that framework's own registry, under the command line of the plugins'
// examples:
//
//	PROGRAM -registry URL [-listen HOST:PORT] [-weight N] [-tag KEY=VALUE] serve SERVICE
//	PROGRAM -registry URL [-every 1s] call SERVICE
//	PROGRAM -registry URL list SERVICE
//
// URL is zookeeper://HOST:PORT or nacos://HOST:PORT/NAMESPACE; what follows a
// question mark is not read.
package program

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Program is an application of a framework.
type Program struct {
	// Serve runs a server until ctx ends and then until it has ended.
	Serve func(ctx context.Context, r *Registry, at Place) error

	// Dial returns how a service is called.
	Dial func(r *Registry, service string) (Call, error)

	// List returns what the framework's own registry reports of a service.
	List func(ctx context.Context, r *Registry, service string) ([]Instance, error)
}

// Place is what is served, where, and what is reported of it.
type Place struct {
	Service string
	Address string // host:port
	Weight  int    // 0: the framework's own
	Tags    map[string]string

	Drain time.Duration // how long it continues once it is withdrawn
}

// Answer is what every server says.
func (p Place) Answer() string { return "hello from " + p.Address }

// Call calls a service and returns what it says.
type Call func(ctx context.Context) (string, error)

// Instance is a server as consumers are notified of it.
type Instance struct {
	Address string `json:"address"`
	Weight  int    `json:"weight"`
	Zone    string `json:"zone"` // its tag of that name
}

// timeout is that of one call, and of a list.
const timeout = 10 * time.Second

// Main runs an application with the command line of the process until it is asked to end.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func (p Program) run(ctx context.Context, args []string, out io.Writer) error {
	at := Place{Tags: make(map[string]string)}
	flags := flag.NewFlagSet("application", flag.ContinueOnError)
	registry := flags.String("registry", "", "`URL` of the registry")
	flags.StringVar(&at.Address, "listen", "127.0.0.1:8000", "where serve listens")
	flags.IntVar(&at.Weight, "weight", 0, "of the server")
	flags.Func("tag", "`KEY=VALUE` of the server", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("want KEY=VALUE")
		}
		at.Tags[key] = value
		return nil
	})
	flags.DurationVar(&at.Drain, "drain", time.Second, "how long serve continues once it is withdrawn")
	every := flags.Duration("every", time.Second, "how often call calls")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := open(*registry)
	if err != nil {
		return err
	}
	at.Service = flags.Arg(1)
	switch command := flags.Arg(0); {
	case flags.NArg() == 2 && command == "serve":
		return p.Serve(ctx, r, at)
	case flags.NArg() == 2 && command == "call":
		return p.call(ctx, r, at.Service, caller{out, *every})
	case flags.NArg() == 2 && command == "list":
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		all, err := p.List(ctx, r, at.Service)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(all)
	default:
		return errors.New("want serve, call or list, and a service")
	}
}

// caller is how often a service is called and where its answers go.
type caller struct {
	out   io.Writer
	every time.Duration
}

func (p Program) call(ctx context.Context, r *Registry, service string, to caller) error {
	call, err := p.Dial(r, service)
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
