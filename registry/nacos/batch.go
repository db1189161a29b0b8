package nacos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A batch is all that a connection is to publish for one service.
type batch struct {
	instances []model.Instance
	text      string // what two batches are compared by: one canonical instance a line
}

// newBatch returns a batch of entries without those that a server would
// refuse, and why those are left out.
func newBatch(entries []registry.Entry) (batch, error) {
	var refused []error
	var text strings.Builder
	b := batch{instances: make([]model.Instance, 0, len(entries))}
	for _, e := range entries {
		in, err := metadata.ParseNacosInstance(e.Value)
		if err == nil {
			err = in.Check()
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", e.Key, err))
			continue
		}
		b.instances = append(b.instances, toModel(in))
		text.WriteString(e.Value)
		text.WriteByte('\n')
	}
	b.text = text.String()
	return b, join(refused)
}

// join makes several errors one line, of which only the first few are told.
func join(errs []error) error {
	const most = 3
	if len(errs) <= 1 {
		return errors.Join(errs...)
	}
	err := errs[0]
	for _, more := range errs[1:min(most, len(errs))] {
		err = fmt.Errorf("%w; %w", err, more)
	}
	if n := len(errs) - most; n > 0 {
		err = fmt.Errorf("%w; and %d more", err, n)
	}
	return err
}
