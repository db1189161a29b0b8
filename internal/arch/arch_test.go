// Package arch_test checks the imports of packages. The linter has the same rules for each file; this
// test also sees indirect imports.
package arch_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/xds-bridge/xds-bridge/"

// none matches nothing.
const none = `^$`

// A layer is what packages may import, in addition to the standard library.
type layer struct {
	own   string // packages of this module that they may depend on, directly or indirectly
	sdk   string // other modules that they may import, with their dependencies
	apart string // packages of the standard library that they must not import
}

// unclean are the packages for I/O and time.
const unclean = `^(context|log/slog|net/http|os|sync|time)$`

const adapters = `registry|registry/(statefile|tlsfile|dependency|kubelist)|metadata(/.*)?|naming`

// clients are the packages of plugins/client.
const clients = adapters + `|registry/(mesh|zookeeper|nacos)(/.*)?|bridge/plan|internal/gostlog|plugins/client(/.*)?|plugins/internal/seam`

var layers = map[string]layer{
	"./naming":                      {own: `^naming$`, sdk: none, apart: unclean},
	"./registry":                    {own: `^registry$`, sdk: none},
	"./metadata/...":                {own: `^(registry|metadata(/.*)?|naming)$`, sdk: none, apart: unclean},
	"./bridge/plan":                 {own: `^(registry|bridge/plan)$`, sdk: none, apart: unclean},
	"./bridge/guard":                {own: `^(registry|bridge/guard)$`, sdk: none, apart: `^(context|log/slog|net/http|os|sync)$`},
	"./bridge":                      {own: `^(registry|bridge|bridge/(plan|guard))$`, sdk: none},
	"./config":                      {own: `^(naming|registry|metadata(/.*)?|config)$`, sdk: `^github.com/goccy/go-yaml`},
	"./registry/statefile":          {own: `^registry/statefile$`, sdk: none},
	"./registry/tlsfile":            {own: `^registry/tlsfile$`, sdk: none},
	"./registry/kubelist":           {own: `^registry/kubelist$`, sdk: none},
	"./registry/dependency":         {own: `^(registry|registry/dependency|metadata|naming)$`, sdk: none},
	"./registry/mesh/...":           {own: `^(` + adapters + `|registry/mesh(/.*)?)$`, sdk: `^(google.golang.org/(grpc|protobuf|genproto)|github.com/envoyproxy/go-control-plane|istio.io/api|k8s.io/)|^golang.org/x/sync/`},
	"./registry/mesh/kube":          {own: `^(` + adapters + `|registry/mesh(/.*)?)$`, sdk: `^(k8s.io/(api|apimachinery|client-go|klog)(/|$)|istio.io/api)`},
	"./registry/zookeeper/...":      {own: `^(` + adapters + `|registry/zookeeper(/.*)?)$`, sdk: `^(github.com/go-zookeeper/zk|golang.org/x/sync/)`},
	"./registry/nacos/...":          {own: `^(` + adapters + `|registry/nacos(/.*)?)$`, sdk: `^(google.golang.org/(grpc|protobuf)|github.com/nacos-group/nacos-sdk-go)|^golang.org/x/sync/`},
	"./registry/kubernetes":         {own: `^(` + adapters + `|registry/kubernetes)$`, sdk: `^(k8s.io/(api|apimachinery|client-go)/|k8s.io/klog/v2$|sigs.k8s.io/yaml$|go.yaml.in/yaml/v2$)`},
	"./registry/dubborpc":           {own: `^(` + adapters + `|registry/dubborpc)$`, sdk: `^google.golang.org/(grpc|protobuf)`},
	"./plugins/client":              {own: `^(` + adapters + `|bridge/plan|plugins/client|plugins/internal/seam)$`, sdk: `^github.com/dubbogo/gost/`},
	"./plugins/client/zookeeper":    {own: `^(` + adapters + `|bridge/plan|registry/zookeeper|plugins/client(/zookeeper)?|plugins/internal/seam)$`, sdk: none},
	"./plugins/client/nacos":        {own: `^(` + adapters + `|bridge/plan|registry/nacos|plugins/client(/nacos)?|plugins/internal/seam)$`, sdk: none},
	"./plugins/client/mesh":         {own: `^(` + adapters + `|bridge/plan|registry/mesh(/.*)?|plugins/client(/mesh)?|plugins/internal/seam)$`, sdk: `^(google.golang.org/grpc$|github.com/dubbogo/gost/)`},
	"./plugins/client/all":          {own: `^(` + clients + `)$`, sdk: none},
	"./plugins/internal/...":        {own: `^(` + clients + `|plugins/internal/.*|internal/fake/client)$`, sdk: `^google.golang.org/(grpc$|protobuf/)`},
	"./docs":                        {own: `^docs$`, sdk: none},
	"./examples":                    {own: `^examples$`, sdk: none},
	"./internal/conformance":        {own: `^(registry|metadata(/serviceentry)?|naming|internal/conformance)$`, sdk: none},
	"./internal/conformance/plugin": {own: `^(` + clients + `|internal/(fake/client|conformance/plugin))$`, sdk: none},
	"./internal/fake/client":        {own: `^(` + clients + `|internal/fake/client)$`, sdk: none},
	"./internal/fake/istiod":        {own: `^internal/fake/istiod$`, sdk: `^(google.golang.org/(grpc|protobuf|genproto)|github.com/envoyproxy/go-control-plane)`},
	"./internal/fake/kubernetes":    {own: `^internal/fake/kubernetes$`, sdk: none},
	"./internal/fake/memory":        {own: `^(registry|internal/fake/memory)$`, sdk: none},
	"./internal/fake/nacos":         {own: `^internal/fake/nacos$`, sdk: `^(google.golang.org/(grpc|protobuf)|github.com/nacos-group/nacos-sdk-go)`},
	"./internal/fake/zookeeper":     {own: `^internal/fake/zookeeper$`, sdk: none},
	"./internal/cause":              {own: `^internal/cause$`, sdk: none},
	"./internal/admin/client":       {own: `^(` + adapters + `|bridge(/.*)?|config|internal/(admin(/client)?|audit|cause|redact))$`, sdk: none},
	"./internal/preflight":          {own: `^(` + adapters + `|registry/mesh/(ads|debug)|config|internal/preflight)$`, sdk: none},
	"./internal/projection":         {own: `^(` + adapters + `|registry/mesh(/.*)?|config|internal/projection)$`, sdk: none},
	"./internal/operation":          {own: `^(` + adapters + `|registry/mesh(/.*)?|bridge(/.*)?|config|internal/(admin|audit|cause|operation|projection|redact))$`, sdk: none},
	"./internal/kind":               {own: `^(` + adapters + `|registry/.*|bridge(/.*)?|config|internal/(admin(/client)?|audit|cause|kind|lease|metrics|preflight|projection|redact))$`, sdk: ``},
	"./internal/...":                {own: `^(registry|metadata|naming|bridge|config|internal|examples|plugins/client|plugins/internal/seam)(/.*)?$`, sdk: ``},
}

func TestLayers(t *testing.T) {
	for packages, allowed := range layers {
		t.Run(packages, func(t *testing.T) {
			own, sdk := regexp.MustCompile(allowed.own), regexp.MustCompile(allowed.sdk)
			for _, path := range list(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", packages) {
				if name, ours := strings.CutPrefix(path, module); ours && !own.MatchString(name) {
					t.Errorf("depends on %s", name)
				}
			}
			for _, path := range list(t, "-f", "{{join .Imports \"\\n\"}}", packages) {
				foreign := strings.Contains(path, ".") && !strings.HasPrefix(path, module)
				if foreign && !sdk.MatchString(path) {
					t.Errorf("imports %s", path)
				}
				if allowed.apart != "" && regexp.MustCompile(allowed.apart).MatchString(path) {
					t.Errorf("imports %s, but must not do I/O or use time", path)
				}
			}
		})
	}
}

// TestLayers_Complete requires that each package is in a layer.
func TestLayers_Complete(t *testing.T) {
	covered := list(t, append([]string{"-f", "{{.ImportPath}}"}, keys()...)...)
	for _, path := range list(t, "-f", "{{.ImportPath}}", "./...") {
		if !slices.Contains(covered, path) && !strings.HasPrefix(path, module+"cmd/") {
			t.Errorf("%s is in no layer", strings.TrimPrefix(path, module))
		}
	}
}

// TestCommandsOnlyPrint keeps everything except flags and texts out of cmd.
func TestCommandsOnlyPrint(t *testing.T) {
	allowed := regexp.MustCompile(`^(config|bridge|registry|internal/(app|admin(/client)?|cause|demo|kind|operation|preflight|projection|redact))$`)
	for _, path := range list(t, "-f", "{{join .Imports \"\\n\"}}", "./cmd/...") {
		if name, ours := strings.CutPrefix(path, module); ours && !allowed.MatchString(name) {
			t.Errorf("cmd imports %s", name)
		}
	}
}

func keys() []string {
	var patterns []string
	for p := range layers {
		patterns = append(patterns, p)
	}
	return patterns
}

// list runs go list in the root of the module and returns its lines, sorted and without duplicates.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e"}, args...)...)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return slices.Compact(slices.Sorted(strings.FieldsSeq(string(out))))
}
