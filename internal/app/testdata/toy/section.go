package config

// Toy is a registry in the memory of the process.
type Toy struct {
	Name string `yaml:"name" need:"such as toy" doc:"What it is called in the process."`
}

// Settings implements Section.
func (t *Toy) Settings() Settings {
	return Settings{Kind: "toy", Subsets: true, Title: "the toy", Servers: []string{t.Name}, Layout: UnderRoots}
}
