package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrNoNamespace means that the servers do not list the client's namespace. They accept
// instances there, and show them in no console.
var ErrNoNamespace = errors.New("the namespace does not exist")

// namespacePaths returns the paths that list namespaces, of version 3 and of version 2. A
// server may have neither. Version 3 lists namespaces only to administrators.
func namespacePaths() []string {
	return []string{"/v3/admin/core/namespace/list", "/v1/console/namespaces"}
}

// namespacesTimeout is the time limit for a list of namespaces. The HTTP port may be closed to
// a client without a login.
const namespacesTimeout = 3 * time.Second

// missing returns ErrNoNamespace if a server lists namespaces without the client's one; nil
// if the namespace exists or no server lists any.
func (c *Client) missing(ctx context.Context) error {
	ours := c.opts.Namespace
	if ours == "" || ours == publicNamespace {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, namespacesTimeout)
	defer cancel()
	for _, s := range c.servers {
		for _, address := range s.addresses(namespacePaths()) {
			all, err := c.namespaces(ctx, address)
			if err != nil || len(all) == 0 {
				continue
			}
			return findNamespace(all, ours)
		}
	}
	return nil
}

// awaitNamespace shows in the state whether the namespace of a connection exists, until it
// exists. Writes continue, because clients that use the same id find the instances.
func (c *Client) awaitNamespace(ctx context.Context, cn *conn) {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := c.missing(ctx)
		if err == nil && attempt == 1 || !c.setNamespaceError(cn, err) || err == nil {
			return
		}
		if attempt == 1 {
			c.opts.Log.Warn("nacos namespace not found", "server", cn.server.grpc, "err", err)
		}
		registry.Sleep(ctx, c.opts.requestBackoff(attempt))
	}
}

// setNamespaceError sets the error of a connection. It returns false if the connection is no
// longer the current one.
func (c *Client) setNamespaceError(cn *conn, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != cn {
		return false
	}
	c.state.LastError = ""
	if err != nil {
		c.state.LastError = err.Error()
	}
	return true
}

// A namespace is an element of a server's list.
type namespace struct {
	ID   string `json:"namespace"`
	Name string `json:"namespaceShowName"`
}

// findNamespace returns an error if a list has no namespace with an id.
func findNamespace(all []namespace, id string) error {
	err := fmt.Errorf("%w: %q", ErrNoNamespace, id)
	for _, n := range all {
		if n.ID == id {
			return nil
		}
		if n.Name == id {
			err = fmt.Errorf("%w: %q is the name of the namespace with the id %q", ErrNoNamespace, id, n.ID)
		}
	}
	return err
}

func (c *Client) namespaces(ctx context.Context, address string) ([]namespace, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if token := c.login.token(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	const most = 8 << 20
	status, body, err := c.login.send(req, most)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("status %d", status)
	}
	return readNamespaces(body)
}

func readNamespaces(body []byte) ([]namespace, error) {
	var answer struct {
		Data []namespace `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return answer.Data, nil
}
