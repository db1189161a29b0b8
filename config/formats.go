package config

// trait is what sets one format apart from the others.
type trait struct {
	root     string // the ZooKeeper folder by default; empty: it has no form in ZooKeeper
	protocol string // by default
	named    bool   // its services in Nacos are told from all others by their names
	silent   bool   // its entries do not say which format they are of
	keyed    bool   // what its services are called follows from keys and applications, and from no pattern
}

// traits returns those of every format that Format.Format allows.
func traits() map[string]trait {
	return map[string]trait{
		"dubbo-interface":   {root: "/dubbo", protocol: "tri", named: true, keyed: true},
		"dubbo-application": {root: "/services", protocol: "tri", keyed: true},
		"spring-cloud":      {root: "/services", protocol: "http"},
		"kratos":            {root: "/microservices", protocol: "grpc", named: true},
		"gozero":            {protocol: "grpc", silent: true},
		"hertz":             {root: "/", protocol: "http", silent: true},
		"kitex":             {root: "/", protocol: "thrift", silent: true},
		"plain":             {root: "/plain", protocol: "tcp", silent: true},
	}
}

// complete fills in what depends on the format.
func (c *Config) complete() {
	for i := range c.Bridges {
		for _, formats := range [][]Format{c.Bridges[i].Formats, c.Bridges[i].Reads} {
			for j := range formats {
				formats[j] = formats[j].completed()
			}
		}
	}
}

func (f Format) completed() Format {
	t := traits()[f.Format]
	if f.Root == "" {
		f.Root = t.root
	}
	if f.Protocol == "" {
		f.Protocol = t.protocol
	}
	return f
}

// Read returns the formats in which the registry that the bridge leads from
// is read, where it is no mesh.
func (b Bridge) Read() []Format {
	if len(b.Reads) > 0 {
		return b.Reads
	}
	return b.Formats
}
