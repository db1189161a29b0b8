package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func TestTriple(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}))
	server.RegisterService(greetService(), provider{"20001"})
	go func() { _ = server.Serve(listener) }() // ends by Stop
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })

	for name, text := range map[string]string{
		"an empty text":                       "",
		"a text of the short form":            "bob",
		"the longest text of the short form":  strings.Repeat("b", 12),
		"the shortest answer of the long one": strings.Repeat("b", 20),
		"a text of the long form":             strings.Repeat("b", 900),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			got, err := call(ctx, conn, "mesh", text)
			if want := "hello " + text + " from 20001"; err != nil || got != want {
				t.Errorf("answer %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestUnwrap_Invalid(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"nothing":              {},
		"half a message":       {0x12, 0x05, 0x03},
		"a text that is short": {0x12, 0x02, 0x03, 'b'},
		"an object":            {0x12, 0x01, 'O'},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text, err := unwrap(b); err == nil {
				t.Errorf("no error but the text %q", text)
			}
		})
	}
}
