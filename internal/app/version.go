package app

import (
	"cmp"
	goruntime "runtime"
	"runtime/debug"
)

// A Build says what a binary is.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Date     string `json:"date"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuild returns what this binary is. The version is what the linker noted;
// empty, the build information has it.
func ReadBuild(version string) Build {
	b := Build{Version: "unknown", Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(version, b.Version)
		return b
	}
	if b.Version = cmp.Or(version, info.Main.Version); b.Version == "" || b.Version == "(devel)" {
		b.Version = "development"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		}
	}
	return b
}
