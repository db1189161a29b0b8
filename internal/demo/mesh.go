package demo

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/xds-bridge/xds-bridge/naming"
)

// meshFile is the state of the embedded istiod, in the format of examples/mesh.yaml. After it is
// read, the goroutine that applies steps owns it.
type meshFile struct {
	Services []service `yaml:"services"`
	Churn    churn     `yaml:"churn"`
}

type service struct {
	Host      string     `yaml:"host"`
	Port      uint16     `yaml:"port"`
	Headless  bool       `yaml:"headless"`
	Keys      []string   `yaml:"keys"`
	Endpoints []endpoint `yaml:"endpoints"`
}

type endpoint struct {
	Address string `yaml:"address"`
	Port    uint16 `yaml:"port"` // 0: the service's
	Weight  uint32 `yaml:"weight"`
	Zone    string `yaml:"zone"` // region/zone/subzone
	Subset  string `yaml:"subset"`
	Health  string `yaml:"health"`
}

type churn struct {
	Every time.Duration `yaml:"every"`
	Steps []step        `yaml:"steps"`
}

// step is a change of the mesh. Exactly one of the hosts is set.
type step struct {
	Add      string   `yaml:"add"`
	Change   string   `yaml:"change"`
	Remove   string   `yaml:"remove"`
	Endpoint endpoint `yaml:"endpoint"`
}

func (s step) host() string { return s.Add + s.Change + s.Remove }

func (s step) String() string {
	action := "add"
	switch {
	case s.Change != "":
		action = "change"
	case s.Remove != "":
		action = "remove"
	}
	return action + " " + s.Endpoint.Address + " of " + s.host()
}

// parseMesh parses a mesh file. The error names the line or the service.
func parseMesh(text []byte) (*meshFile, error) {
	var m meshFile
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&m); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	if len(m.Services) == 0 {
		return nil, errors.New("mesh: no services; see examples/mesh.yaml")
	}
	for _, s := range m.Services {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("mesh: service %q: %w", s.Host, err)
		}
	}
	for i, st := range m.Churn.Steps {
		if m.find(st.host()) == nil {
			return nil, fmt.Errorf("mesh: churn.steps[%d]: %q: set one of add, change and remove to the host of a service", i, st.host())
		}
		if err := st.Endpoint.check(); err != nil {
			return nil, fmt.Errorf("mesh: churn.steps[%d]: %w", i, err)
		}
	}
	m.Churn.Every = cmp.Or(m.Churn.Every, 2*time.Second)
	return &m, nil
}

func (s service) check() error {
	if s.Host == "" || s.Port == 0 {
		return errors.New("host and port are required")
	}
	for _, key := range s.Keys {
		if _, err := naming.ParseServiceKey(key); err != nil {
			return err
		}
	}
	for _, e := range s.Endpoints {
		if err := e.check(); err != nil {
			return err
		}
	}
	return nil
}

func (e endpoint) check() error {
	if _, err := netip.ParseAddr(e.Address); err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if _, ok := healthOf(e.Health); !ok {
		return fmt.Errorf("endpoint %s: health: must be healthy, degraded, unhealthy or draining (got %q)", e.Address, e.Health)
	}
	return nil
}

func (m *meshFile) find(host string) *service {
	i := slices.IndexFunc(m.Services, func(s service) bool { return s.Host == host })
	if i < 0 {
		return nil
	}
	return &m.Services[i]
}

// apply applies a step. A step that is already applied changes nothing.
func (m *meshFile) apply(st step) {
	s := m.find(st.host())
	kept := slices.DeleteFunc(slices.Clone(s.Endpoints), func(e endpoint) bool { return e.Address == st.Endpoint.Address })
	if st.Remove == "" {
		kept = append(kept, st.Endpoint)
	}
	s.Endpoints = kept
}
