package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/xds" // makes xds:/// known to gRPC
)

// callTime is how long a call may last.
const callTime = 3 * time.Second

// consumer calls services of the mesh by the names that it was given for them.
type consumer struct{ services map[string]service }

type service struct {
	conn  *grpc.ClientConn
	group string
}

func consume(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("consume", flag.ContinueOnError)
	listen := flags.String("listen", ":8080", "where calls are asked for over HTTP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c := consumer{services: make(map[string]service)}
	defer c.close()
	for _, arg := range flags.Args() {
		if err := c.add(arg); err != nil {
			return err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /call/{name}/{text}", c.answer)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: callTime}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve returns by it
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// add parses NAME=HOST:PORT/GROUP.
func (c consumer) add(arg string) error {
	name, rest, named := strings.Cut(arg, "=")
	address, group, _ := strings.Cut(rest, "/")
	if !named || address == "" {
		return fmt.Errorf("%q is not NAME=HOST:PORT/GROUP", arg)
	}
	conn, err := grpc.NewClient("xds:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	c.services[name] = service{conn, group}
	return nil
}

func (c consumer) close() {
	for _, s := range c.services {
		_ = s.conn.Close() // the process ends
	}
}

// answer answers with what the provider said, or with 502 and why there is no
// answer.
func (c consumer) answer(w http.ResponseWriter, r *http.Request) {
	s, ok := c.services[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTime)
	defer cancel()
	text, err := call(ctx, s.conn, s.group, r.PathValue("text"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_, _ = io.WriteString(w, text+"\n") // who asked has gone
}
