package instance

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/naming"
)

// FromFormat returns what a plain format takes of the options that all formats
// have.
func FromFormat(f format.Options) (Options, error) {
	o := Options{
		Root: f.Root, Namespace: f.Namespace, Group: f.Group, Names: Names{Pattern: f.Service}, Join: f.Join,
		Protocol: f.Protocol, Mark: f.Mark, Subsets: f.Subsets, Tags: f.Tags,
	}
	for _, n := range f.Names {
		host, err := naming.ParsePattern(n.Host)
		if err != nil {
			return o, fmt.Errorf("names: %w", err)
		}
		o.Names.Rules = append(o.Names.Rules, NameRule{Host: host, Port: n.Port, Service: n.Service})
		if n.Protocol != "" {
			o.Protocols = append(o.Protocols, Rule{Host: host, Port: n.Port, Protocol: n.Protocol})
		}
	}
	for _, r := range f.Protocols {
		host, err := naming.ParsePattern(r.Host)
		if err != nil {
			return o, fmt.Errorf("protocols: %w", err)
		}
		o.Protocols = append(o.Protocols, Rule{Host: host, Port: r.Port, Protocol: r.Protocol})
	}
	return o, nil
}
