package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

// Istiod is the real istiod on 127.0.0.1.
type Istiod struct {
	GRPC   string // xDS in plaintext
	Secure string // xDS over TLS as istiod.istio-system.svc
	HTTP   string // debug API
	CA     CA     // who signs what is trusted at Secure

	owner   testing.TB // which istiod ends with, whichever subtest starts it
	mesh    *Mesh
	process *Process
}

// StartIstiod starts an istiod that reads the mesh and waits until it serves.
func StartIstiod(t testing.TB, mesh *Mesh) *Istiod {
	t.Helper()
	return StartIstiodAt(t, mesh, Address(t), Address(t))
}

// StartIstiodAt is StartIstiod for an istiod whose addresses of xDS and of the
// debug API had to be known before.
func StartIstiodAt(t testing.TB, mesh *Mesh, xds, debug string) *Istiod {
	t.Helper()
	i := newIstiod(t, mesh, xds, debug)
	i.Start(t)
	return i
}

// LaunchIstiod is StartIstiod for an istiod that may never serve.
func LaunchIstiod(t testing.TB, mesh *Mesh) *Istiod {
	t.Helper()
	i := newIstiod(t, mesh, Address(t), Address(t))
	i.launch(t)
	return i
}

func newIstiod(t testing.TB, mesh *Mesh, xds, debug string) *Istiod {
	t.Helper()
	return &Istiod{owner: t, GRPC: xds, Secure: Address(t), HTTP: debug, CA: NewCA(t), mesh: mesh}
}

// Start starts istiod once more after a Kill or a Stop, at the same addresses,
// and waits until it serves.
func (i *Istiod) Start(t testing.TB) {
	t.Helper()
	i.launch(t)
	Eventually(t, startTime, "istiod is ready", func() error {
		if !i.process.Running() {
			t.Fatalf("istiod ended: %s", i.process.tail())
		}
		if _, err := i.get(t, "/ready"); err != nil {
			return err
		}
		// It says ready shortly before it listens.
		return errors.Join(listens(t, i.GRPC), listens(t, i.Secure))
	})
}

func (i *Istiod) launch(t testing.TB) {
	t.Helper()
	i.process = Start(i.owner, Command{
		Name: "istiod",
		Path: installed(t, "istiod"),
		Args: append(i.mesh.arguments(t), "-grpcAddr", i.GRPC, "-secureGRPCAddr", i.Secure, "-httpAddr", i.HTTP),
		// The filter of metadata exchange is in istio's build of Envoy alone. By default istiod refuses more than 25 requests
		// a second, which a restart under twenty clients exceeds.
		Env: []string{"PILOT_DEBOUNCE_AFTER=10ms", "PILOT_MAX_REQUESTS_PER_SECOND=1000", "PILOT_ENABLE_METADATA_EXCHANGE=false", "ROOT_CA_DIR=" + i.CA.Dir},
	})
}

// Running reports whether istiod runs.
func (i *Istiod) Running() bool { return i.process.Running() }

// Process returns the running istiod.
func (i *Istiod) Process() *Process { return i.process }

// Kill ends istiod at once.
func (i *Istiod) Kill() { i.process.Kill() }

// PublishedKeys returns the service keys that istiod shows in its debug API,
// each client's as it is there: its connection's proxy id to the JSON text.
func (i *Istiod) PublishedKeys(t testing.TB) (map[string]string, error) {
	t.Helper()
	body, err := i.get(t, "/debug/adsz")
	if err != nil {
		return nil, err
	}
	var adsz struct {
		Clients []struct {
			ConnectionID string `json:"connectionId"`
			Metadata     struct {
				Labels map[string]string `json:"LABELS"`
			} `json:"metadata"`
		} `json:"clients"`
	}
	if err := json.Unmarshal(body, &adsz); err != nil {
		return nil, fmt.Errorf("adsz: %w", err)
	}
	keys := make(map[string]string)
	for _, c := range adsz.Clients {
		if text, ok := c.Metadata.Labels[keysLabel]; ok {
			keys[c.ConnectionID] = text
		}
	}
	return keys, nil
}

func (i *Istiod) get(t testing.TB, path string) ([]byte, error) {
	t.Helper()
	return get(t, "http://"+i.HTTP+path)
}
