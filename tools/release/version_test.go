package main

import (
	"strings"
	"testing"
	"time"
)

func TestVersion_OwnModules(t *testing.T) {
	t.Parallel()
	const text = `module example.com/greeter

go 1.26.0

require (
	github.com/xds-bridge/xds-bridge v0.1.0
	github.com/xds-bridge/xds-bridge/plugins/grpc v0.1.0 // indirect
	google.golang.org/grpc v1.84.0
)
`
	want := strings.ReplaceAll(text, "v0.1.0", "v0.2.0-rc.1")
	if got, err := requireVersion("go.mod", []byte(text), "v0.2.0-rc.1"); err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	if got := nameVersion(text, "v0.2.0-rc.1"); got != want {
		t.Errorf("%s", got)
	}
	if got := nameVersion(want+"go get github.com/xds-bridge/xds-bridge/plugins/kratos@v0.1.0", "v0.3.0"); strings.Count(got, "v0.3.0") != 3 {
		t.Errorf("%s", got)
	}
}

func TestChangelog(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	got, err := releaseNotes("# Changelog\n\n## Unreleased\n\n- New.\n\n## v0.1.0 - 2026-11-01\n\n- First.\n", "v0.2.0", at)
	if want := "# Changelog\n\n## Unreleased\n\n## v0.2.0 - 2026-12-01\n\n- New.\n\n## v0.1.0 - 2026-11-01\n\n- First.\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := releaseNotes(got, "v0.3.0", at); err == nil {
		t.Error("a release of nothing is prepared")
	}
}
