package dubbo

import "github.com/xds-bridge/xds-bridge/metadata/format"

// Format describes the interface-level format.
func Format() format.Descriptor {
	return format.Descriptor{
		Name: Kind, Root: DefaultRoot, Protocol: DefaultProtocol, Lookup: format.ByKey, OwnNames: true,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(fromFormat, NewZooKeeper),
			format.Nacos:     format.Form(fromFormat, NewNacos),
		},
	}
}

// FormatApplication describes the application-level format.
func FormatApplication() format.Descriptor {
	return format.Descriptor{
		Name: KindApplication, Root: DefaultServices, Protocol: DefaultProtocol, Lookup: format.ByMapping,
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(fromApplicationFormat, NewZooKeeperApp),
			format.Nacos:     format.Form(fromApplicationFormat, NewNacosApp),
		},
	}
}

// fromFormat returns what the formats of Dubbo take of the options that all
// formats have.
func fromFormat(f format.Options) (Options, error) {
	o := Options{
		Root: f.Root, Namespace: f.Namespace, Group: f.Group, Protocol: f.Protocol,
		Mark: f.Mark, Subsets: f.Subsets, Tags: f.Tags, Reserve: f.Reserve,
	}
	for _, n := range f.Names {
		if n.Service != "" {
			o.Applications = append(o.Applications, AppRule{Host: n.Host, Port: n.Port, Application: n.Service})
		}
		if n.Protocol != "" {
			o.Protocols = append(o.Protocols, Rule{Host: n.Host, Port: n.Port, Protocol: n.Protocol})
		}
	}
	for _, r := range f.Protocols {
		o.Protocols = append(o.Protocols, Rule(r))
	}
	return o, nil
}

func fromApplicationFormat(f format.Options) (Options, error) {
	o, err := fromFormat(f)
	o.Services, o.Root = f.Root, f.Documents
	return o, err
}
