package dataplane

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/naming"
)

// ParseRules reads DestinationRules and VirtualServices as Kubernetes has them,
// each a JSON document.
func ParseRules(documents [][]byte) (Rules, error) {
	var (
		faults       []error
		destinations []*networking.DestinationRule
		services     []*networking.VirtualService
	)
	for i, text := range documents {
		var object struct {
			Kind string          `json:"kind"`
			Spec json.RawMessage `json:"spec"`
		}
		err := json.Unmarshal(text, &object)
		switch {
		case err != nil:
		case object.Kind == "DestinationRule":
			d := new(networking.DestinationRule)
			err = protojson.Unmarshal(object.Spec, d)
			destinations = append(destinations, d)
		case object.Kind == "VirtualService":
			s := new(networking.VirtualService)
			err = protojson.Unmarshal(object.Spec, s)
			services = append(services, s)
		default:
			err = fmt.Errorf("kind %s: want DestinationRule or VirtualService", naming.Quote(object.Kind))
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("document %d: %w", i+1, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return Rules{}, err
	}
	return NewRules(destinations, services)
}
