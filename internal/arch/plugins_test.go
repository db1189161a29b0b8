package arch_test

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// frameworks are the modules of RPC frameworks, other than gRPC.
var frameworks = regexp.MustCompile(`dubbo-go|cloudwego/|go-kratos/|zeromicro/|go-kit/`)

// TestModules_NoFrameworks requires that the module of the bridge depends on no framework: each plugin
// is a separate module.
func TestModules_NoFrameworks(t *testing.T) {
	for _, line := range list(t, "-m", "-f", "{{.Path}}", "all") {
		if frameworks.MatchString(line) {
			t.Errorf("the module of the bridge requires %s", line)
		}
	}
}

// TestPluginsAreThin requires that a plugin has at most two hundred lines of code, and one of them
// less than a hundred. gRPC's plugin has a balancer in addition. dubbo-go's has a router, and what
// dubbo-go requires of a registry at both levels.
func TestPluginsAreThin(t *testing.T) {
	lines := make(map[string]int)
	for _, file := range pluginFiles(t) {
		lines[filepath.Base(filepath.Dir(file))] += linesOfCode(t, file)
	}
	least := 1000
	for plugin, n := range lines {
		least = min(least, n)
		if n > map[string]int{"grpc": 250, "dubbogo": 420}[plugin] && n > 200 {
			t.Errorf("%s has %d lines of code", plugin, n)
		}
	}
	if len(lines) < 6 || least >= 100 {
		t.Errorf("lines of code: %v", lines)
	}
}

// pluginFiles returns the sources of the plugins, without tests and examples.
func pluginFiles(t *testing.T) (files []string) {
	t.Helper()
	all, err := filepath.Glob("../../plugins/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if plugin := filepath.Base(filepath.Dir(file)); plugin != "client" && !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
	}
	return files
}

// linesOfCode counts the lines with code.
func linesOfCode(t *testing.T, name string) int {
	t.Helper()
	text := readFile(t, name)
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, 0)
	lines := make(map[int]bool)
	for {
		at, what, _ := s.Scan()
		if what == token.EOF {
			return len(lines)
		}
		lines[file.Line(at)] = true
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
