package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// build builds the binary of a platform as make build does, and writes the list of its modules next
// to it.
func (r *release) build(ctx context.Context, platform string) error {
	system, processor, _ := strings.Cut(platform, "/")
	environment := []string{"GOOS=" + system, "GOARCH=" + processor, "GOFLAGS=-buildvcs=true"}
	if _, err := command(ctx, r.clone(), environment, "make", "build", "version="+r.version); err != nil {
		return err
	}
	binary := filepath.Join(r.out, fmt.Sprintf("xds-bridge_%s_%s_%s", r.version, system, processor))
	if err := os.Rename(filepath.Join(r.clone(), "bin", "xds-bridge"), binary); err != nil {
		return fmt.Errorf("%w", err)
	}
	bom, err := billOfMaterials(binary)
	if err != nil {
		return fmt.Errorf("SBOM of %s: %w", binary, err)
	}
	return write(binary+".cdx.json", bom)
}

// billOfMaterials returns the output of go version -m for a binary, as CycloneDX.
func billOfMaterials(binary string) ([]byte, error) {
	generator, err := bin.NewGenerator(binary, bin.WithIncludeStdlib(true), bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return nil, err
	}
	bom, err := generator.Generate()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// sum writes the checksums of all files except the clone, in the format of sha256sum -c.
func (r *release) sum() error {
	var sums strings.Builder
	err := filepath.WalkDir(r.out, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == r.clone():
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(r.out, name)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), filepath.ToSlash(relative))
		return err
	})
	if err != nil {
		return fmt.Errorf("%w", err)
	}
	return write(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()))
}
