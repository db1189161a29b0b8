// Command faulttable makes and checks the table of docs/reliability.md.
//
//	go test -json ./... | faulttable watch RUN [PACKAGES]
//	                                             # prints what go test prints, and keeps the results in the file RUN;
//	                                             # PACKAGES is how many packages there are
//	faulttable write DOCUMENT RUN...             # puts the table of these runs into the document
//	faulttable check DOCUMENT RUN...             # fails where the document says more than these runs showed
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/xds-bridge/xds-bridge/internal/reliability"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "watch":
		return watch(args[1], 0)
	case len(args) == 3 && args[0] == "watch":
		packages, err := strconv.Atoi(args[2])
		if err != nil {
			return fmt.Errorf("watch: number of packages: %w", err)
		}
		return watch(args[1], packages)
	case len(args) > 2 && (args[0] == "write" || args[0] == "check"):
		document, err := os.ReadFile(args[1])
		if err != nil {
			return fmt.Errorf("read the document: %w", err)
		}
		runs, err := read(args[2:])
		if err != nil {
			return err
		}
		if args[0] == "check" {
			return reliability.Check(string(document), runs) //nolint:wrapcheck // it is the message
		}
		return write(args[1], string(document), runs)
	}
	return errors.New("usage: faulttable watch RUN [PACKAGES], write DOCUMENT RUN..., or check DOCUMENT RUN... with one or several runs")
}

func watch(record string, packages int) error {
	if err := os.MkdirAll(filepath.Dir(record), 0o750); err != nil {
		return fmt.Errorf("make a folder for the results: %w", err)
	}
	file, err := os.Create(record) //nolint:gosec // the Makefile names it
	if err != nil {
		return fmt.Errorf("keep the results: %w", err)
	}
	err = reliability.Watch(os.Stdin, file, os.Stdout, packages)
	return errors.Join(err, file.Close())
}

func read(records []string) (*reliability.Run, error) {
	runs := reliability.NewRun()
	for _, record := range records {
		file, err := os.Open(record) //nolint:gosec // the Makefile names it
		if err != nil {
			return nil, fmt.Errorf("read the results: %w", err)
		}
		err = runs.Read(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", record, err)
		}
	}
	return runs, nil
}

func write(path, document string, runs *reliability.Run) error {
	table, err := reliability.Table(runs)
	if err != nil {
		return fmt.Errorf("no table:\n%w", err)
	}
	text, err := reliability.Insert(document, table)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}
