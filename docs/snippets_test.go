package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippet is what a block of Go of a page requires around it to be a program's
// package.
type snippet struct {
	page       string
	module     string // the directory of the module that has its framework
	head, tail string
}

const ours = "github.com/xds-bridge/xds-bridge"

// snippets returns what the blocks need, in the order of the document.
func snippets(t *testing.T) []snippet {
	t.Helper()
	return []snippet{
		{"plugins.md", ".", imports("log/slog", ours+"/plugins/client", ours+"/plugins/client/zookeeper") + "func f() (*client.Client, error) {\n", "return c, err }\n"},
		{"plugins.md", ".", imports("context", ours+"/plugins/client") + "func f(ctx context.Context, c *client.Client, podIP string) error {\n", "return nil }\n"},
		{
			"plugins/grpc.md", "plugins/grpc", imports("google.golang.org/grpc", "google.golang.org/grpc/balancer", "google.golang.org/grpc/credentials/insecure", ours+"/plugins/client", "xgrpc "+ours+"/plugins/grpc") +
				"func f(c *client.Client) (*grpc.ClientConn, error) {\n", "return conn, err }\n",
		},
		{
			"plugins/kratos.md", "plugins/kratos", imports("context", "github.com/go-kratos/kratos/v2", "kgrpc github.com/go-kratos/kratos/v2/transport/grpc", ours+"/plugins/client", "xkratos "+ours+"/plugins/kratos") +
				"func f(ctx context.Context, c *client.Client, srv *kgrpc.Server) (any, any, error) {\n", "return app, conn, err }\n",
		},
		{
			"plugins/hertz.md", "plugins/hertz", imports("hclient github.com/cloudwego/hertz/pkg/app/client", "github.com/cloudwego/hertz/pkg/app/server", "github.com/cloudwego/hertz/pkg/app/server/registry", ours+"/plugins/client", "xhertz "+ours+"/plugins/hertz", "net") +
				"func f(c *client.Client, addr net.Addr, cli *hclient.Client) any {\n", "return h }\n",
		},
		{
			"plugins/gozero.md", "plugins/gozero", imports("github.com/zeromicro/go-zero/zrpc", "registry "+ours+"/plugins/client", ours+"/plugins/gozero") +
				"func f(c *registry.Client, serverConf zrpc.RpcServerConf) (any, any, error) {\n", "return stop, client, err }\n",
		},
		{
			"plugins/gokit.md", "plugins/gokit", imports("log/slog", "github.com/go-kit/kit/sd", "github.com/go-kit/log", ours+"/plugins/client", ours+"/plugins/gokit") +
				"func f(c *client.Client, instance client.Instance, log *slog.Logger, factory sd.Factory, logger log.Logger) []any {\n", "return []any{registrar, endpointer} }\n",
		},
		{"plugins/dubbogo.md", "plugins/dubbogo", "package snippet\n\n", ""},
		{
			"plugins/dubbogo.md", "plugins/dubbogo", imports("dubbo.apache.org/dubbo-go/v3", "dubbo.apache.org/dubbo-go/v3/registry") +
				"func f() (*dubbo.Instance, error) {\n", "return instance, err }\n",
		},
		{
			"plugins/kitex.md", "plugins/kitex", imports("kclient github.com/cloudwego/kitex/client", "github.com/cloudwego/kitex/pkg/rpcinfo", "github.com/cloudwego/kitex/server", ours+"/plugins/client", "xkitex "+ours+"/plugins/kitex") +
				"var greeter struct { // as Kitex generates it\n\tNewServer func(any, ...server.Option) server.Server\n\tNewClient func(string, ...kclient.Option) (any, error)\n}\n\n" +
				"func f(c *client.Client, handler any) (any, any, error) {\n", "return svr, cli, err }\n",
		},
	}
}

func imports(paths ...string) string {
	var text strings.Builder
	text.WriteString("package snippet\n\nimport (\n")
	for _, p := range paths {
		name, path, named := strings.Cut(p, " ")
		if !named {
			name, path = "", p
		}
		text.WriteString("\t" + name + ` "` + path + "\"\n")
	}
	return text.String() + ")\n\n"
}

// TestSnippets vets a program made of each block of Go of the pages, with the
// framework that it is about.
func TestSnippets(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every framework: make test-all runs it")
	}
	pages, err := filepath.Glob("plugins/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := make(map[string][]string) // of each page, those that are not vetted yet
	for _, page := range append(pages, "plugins.md") {
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			blocks[page] = append(blocks[page], m[1])
		}
	}
	for _, s := range snippets(t) {
		if len(blocks[s.page]) == 0 {
			t.Fatalf("%s has fewer blocks of Go", s.page)
		}
		block := blocks[s.page][0]
		blocks[s.page] = blocks[s.page][1:]
		t.Run(s.page, func(t *testing.T) { s.vet(t, block) })
	}
	for page, left := range blocks {
		for _, block := range left {
			t.Errorf("%s: nothing says what is around %s", page, block)
		}
	}
}

// vet vets a block as a package of a module that is not changed by it.
func (s snippet) vet(t *testing.T, block string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(scratch, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	replaced := "quickstart/main.go" // vet does not run in a missing directory: the block replaces this file
	if s.module == "." {
		replaced = "examples/examples.go"
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, s.module, replaced): write("snippet.txt", s.head+block+s.tail)}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "module.sh"), s.module, "go", "vet", "-overlay="+write("overlay.json", string(overlay)), "./"+filepath.Dir(replaced))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
