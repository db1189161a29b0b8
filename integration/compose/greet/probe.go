package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// probeTime is how long get and dial may last.
const probeTime = 5 * time.Second

// dial fails where nobody listens at the address.
func dial(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("dial requires one HOST:PORT")
	}
	conn, err := (&net.Dialer{Timeout: probeTime}).DialContext(ctx, "tcp", args[0])
	if err != nil {
		return err
	}
	return conn.Close()
}

// get prints what each URL answers; it fails where one does not answer 200.
func get(ctx context.Context, urls []string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for _, url := range urls {
		text, err := getOne(ctx, url)
		if err != nil {
			return err
		}
		fmt.Print(text) //nolint:forbidigo // it is what the command is for
	}
	return nil
}

func getOne(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}
