package dubborpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
)

// callTriple calls MetadataServiceV2 by gRPC:
//
//	rpc GetMetadataInfo(Revision{value = 1}) returns (MetadataInfoV2)
//
// The group distinguishes the applications of one provider.
func callTriple(ctx context.Context, m dubbo.MetadataService, d *dialer) (string, error) {
	if m.Protocol != "tri" || m.Version != "2.0.0" {
		return "", fmt.Errorf("%w: MetadataService %s with protocol %s is not supported",
			registry.ErrRefused, m.Version, m.Protocol)
	}
	conn, err := grpc.NewClient("passthrough:///"+m.Address(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(d.dial))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // after the call
	ctx = metadata.AppendToOutgoingContext(ctx, "tri-service-version", m.Version, "tri-service-group", m.Application)
	request := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), m.Revision)
	var answer []byte
	err = conn.Invoke(ctx, "/org.apache.dubbo.metadata.MetadataServiceV2/GetMetadataInfo", request, &answer,
		grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxSize))
	if s := status.Convert(err); s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max") {
		return "", errTooLarge
	}
	if err != nil {
		return "", err
	}
	document, err := documentOf(answer)
	if err != nil {
		return "", err
	}
	if err := checkProvider(document, m); err != nil {
		return "", err
	}
	return textOf(document)
}

// checkProvider refuses a document of another provider, and one without services.
func checkProvider(d dubbo.Document, m dubbo.MetadataService) error {
	switch {
	case d.App != "" && d.App != m.Application:
		return fmt.Errorf("%w: application %.80q", errOtherProvider, d.App)
	case d.Revision != "" && d.Revision != m.Revision:
		return fmt.Errorf("%w: revision %.80q", errOtherProvider, d.Revision)
	case len(d.Services) == 0:
		return errNoService
	}
	return nil
}

var (
	errOtherProvider = errors.New("the response is from another provider")
	errNoService     = errors.New("the response has no service")
	errTooLarge      = fmt.Errorf("%w: the response is larger than %d bytes; "+
		"let the provider store its metadata in the registry", registry.ErrRefused, maxSize)
)

func textOf(d dubbo.Document) (string, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	if len(text) > maxSize {
		return "", errTooLarge
	}
	return string(text), nil
}

// raw is a gRPC codec whose messages are bytes.
type raw struct{}

var errRaw = errors.New("expected bytes")

// Marshal implements encoding.Codec.
func (raw) Marshal(v any) ([]byte, error) {
	if b, ok := v.([]byte); ok {
		return b, nil
	}
	return nil, errRaw
}

// Unmarshal implements encoding.Codec.
func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errRaw
	}
	*b = append([]byte(nil), data...)
	return nil
}

// Name implements encoding.Codec.
func (raw) Name() string { return "proto" }

// documentOf decodes a MetadataInfoV2 into a document as registries store it.
func documentOf(message []byte) (dubbo.Document, error) {
	d := dubbo.Document{Services: make(map[string]dubbo.DocumentService)}
	err := fields(message, func(n int32, value []byte, _ uint64) error {
		switch n {
		case 1:
			d.App = string(value)
		case 2:
			d.Revision = string(value)
		case 3:
			return mapEntry(value, func(key string, value []byte) error {
				s, err := serviceOf(value)
				d.Services[key] = s
				return err
			})
		}
		return nil
	})
	return d, err
}

func serviceOf(message []byte) (dubbo.DocumentService, error) {
	s := dubbo.DocumentService{Params: make(map[string]string)}
	texts := map[int32]*string{1: &s.Name, 2: &s.Group, 3: &s.Version, 4: &s.Protocol, 6: &s.Path}
	err := fields(message, func(n int32, value []byte, number uint64) error {
		switch text, ok := texts[n]; {
		case ok:
			*text = string(value)
		case n == 5:
			s.Port = int(number & 0xffff)
		case n == 7:
			return mapEntry(value, func(key string, value []byte) error {
				s.Params[key] = string(value)
				return nil
			})
		}
		return nil
	})
	return s, err
}

// mapEntry calls each with the entry of a map.
func mapEntry(message []byte, each func(key string, value []byte) error) error {
	var key string
	var value []byte
	err := fields(message, func(n int32, b []byte, _ uint64) error {
		switch n {
		case 1:
			key = string(b)
		case 2:
			value = b
		}
		return nil
	})
	if err != nil {
		return err
	}
	return each(key, value)
}

// fields calls each for every field of a message, with its bytes or its number.
func fields(message []byte, each func(int32, []byte, uint64) error) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return fmt.Errorf("decode response: %w", protowire.ParseError(size))
		}
		message = message[size:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(message)
		default:
			size = protowire.ConsumeFieldValue(n, kind, message)
		}
		if size < 0 {
			return fmt.Errorf("decode response: %w", protowire.ParseError(size))
		}
		message = message[size:]
		if err := each(int32(n), value, number); err != nil {
			return err
		}
	}
	return nil
}
