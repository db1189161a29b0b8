// Package kratos writes and reads services as the registries of Kratos
// register them in ZooKeeper and in Nacos. It is pure: no I/O, no time, no
// state.
package kratos

import (
	"fmt"
	"strconv"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Kind is the Group.Kind of every entry of this format.
const Kind = "kratos"

const (
	keyVersion = "version"
	keyWeight  = "weight"
	keyKind    = "kind"
)

type common struct{}

// Kind implements instance.Form.
func (common) Kind() string { return Kind }

// Speaks implements instance.Form: Kratos has clients of these two.
func (common) Speaks(f convert.Family) bool { return f != convert.Other }

// ownWeight is the metadata in which consumers look for a weight, in either
// registry; none for the usual one.
func ownWeight(i instance.Instance) map[string]string {
	m := make(map[string]string, 2)
	if w := convert.Kratos().Of(i.Share); w != convert.Kratos().Normal {
		m[keyWeight] = strconv.FormatFloat(w, 'f', 0, 64)
	}
	return m
}

// takeWeight reads the weight that metadata tells.
func takeWeight(i *instance.Instance) error {
	text, told := i.Metadata[keyWeight]
	delete(i.Metadata, keyWeight)
	if !told {
		return nil
	}
	w, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || w < 0:
		return fmt.Errorf("%s %.20q is no weight", keyWeight, text)
	case w == 0:
		i.Health = registry.Disabled
	}
	i.Share = convert.Kratos().Share(float64(w))
	return nil
}
