package app

import (
	"fmt"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// unfitting returns the settings of bridges whose patterns fit no service of
// their source, which nobody would be told of otherwise.
func (h *runtime) unfitting() []Remark {
	var all []Remark
	for i, x := range h.cfg.Bridges {
		in := h.source(x.From)
		if in == nil {
			continue
		}
		services, _ := in.table.Snapshot()
		for _, p := range settingsOf(x) {
			pattern, err := naming.ParsePattern(p.text)
			if err != nil || fitsAny(pattern, services) {
				continue
			}
			reason := fmt.Sprintf("%q fits no service of %s", p.text, x.From)
			if host, why := fitsLeftOut(pattern, in.table.Skipped()); host != "" {
				reason = fmt.Sprintf("%q fits only hosts that are left out: %s: %s", p.text, host, why)
			}
			all = append(all, Remark{fmt.Sprintf("bridges[%d].%s", i, p.path), reason})
		}
	}
	return all
}

func fitsAny(p naming.Pattern, services map[registry.Name]*registry.Service) bool {
	for _, sv := range services {
		if metadata.Matches(p, sv) {
			return true
		}
	}
	return false
}

// fitsLeftOut returns the first host of a mesh that a pattern fits of those that
// its source leaves out, and why it does; empty where there is none.
func fitsLeftOut(p naming.Pattern, skipped map[string]string) (host, why string) {
	for _, host := range slices.Sorted(maps.Keys(skipped)) {
		if fits, _ := metadata.MatchesHost(p, host); fits {
			return host, skipped[host]
		}
	}
	return "", ""
}

// setting is a text of a configuration and where it stands.
type setting struct{ path, text string }

// settingsOf returns the patterns of a bridge that select services.
func settingsOf(x config.Bridge) []setting {
	var all []setting
	for j, text := range x.Select.Include {
		all = append(all, setting{fmt.Sprintf("select.include[%d]", j), text})
	}
	for j, text := range x.Select.Exclude {
		all = append(all, setting{fmt.Sprintf("select.exclude[%d]", j), text})
	}
	for j, n := range x.Names {
		all = append(all, setting{fmt.Sprintf("names[%d].host", j), n.Host})
	}
	for j, f := range x.Formats {
		for k, r := range f.Rules {
			all = append(all, setting{fmt.Sprintf("formats[%d].rules[%d].host", j, k), r.Host})
		}
	}
	return all
}
