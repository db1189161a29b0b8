package arch_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// compiled matches the calls and conversions that may initialize a package variable: their result
// depends only on their arguments.
var compiled = regexp.MustCompile(`^(errors\.New|fmt\.Errorf|regexp\.MustCompile|netip\.Must\w+|strings\.NewReplacer|status\.Error|len|\(\*\w+\))$`)

// TestImport_NoEffects requires that no package has an init function, or a variable whose value
// depends on the environment. Only the plugin of dubbo-go has one, because dubbo-go can only be
// extended by an import.
func TestImport_NoEffects(t *testing.T) {
	root := list(t, "-m", "-f", "{{.Dir}}")[0]
	files := 0
	for _, file := range append(list(t, "-f", "{{range .GoFiles}}{{$.Dir}}/{{.}}\n{{end}}", "./..."), pluginFiles(t)...) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files++
		name, _ := filepath.Rel(root, file)
		if strings.HasSuffix(file, "plugins/dubbogo/dubbogo.go") {
			continue
		}
		for _, problem := range atImport(parsed) {
			t.Errorf("%s: %s", name, problem)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were read", files)
	}
}

// atImport returns the code of a file that runs when its package is imported.
func atImport(file *ast.File) (problems []string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				problems = append(problems, "it has an init")
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				problems = append(problems, called(d)...)
			}
		}
	}
	return problems
}

// called returns the calls in the initial values of variables.
func called(d *ast.GenDecl) (problems []string) {
	ast.Inspect(d, func(n ast.Node) bool {
		if _, later := n.(*ast.FuncLit); later {
			return false
		}
		if call, ok := n.(*ast.CallExpr); ok {
			if name := nameOf(call.Fun); !compiled.MatchString(name) {
				problems = append(problems, "a variable calls "+name)
			}
		}
		return true
	})
	return problems
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return nameOf(e.X) + "." + e.Sel.Name
	case *ast.ParenExpr:
		return "(" + nameOf(e.X) + ")"
	case *ast.StarExpr:
		return "*" + nameOf(e.X)
	default:
		return strings.TrimPrefix(fmt.Sprintf("%T", e), "*ast.")
	}
}
