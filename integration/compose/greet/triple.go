package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
)

// What Dubbo's Triple protocol puts into gRPC for an interface without
// protocol buffers: a wrapper message with the arguments in Hessian 2.
//
//	TripleRequestWrapper  { string serializeType = 1; repeated bytes args = 2; repeated string argTypes = 3; }
//	TripleResponseWrapper { string serializeType = 1; bytes data = 2; string type = 3; }
const (
	greetInterface = "org.bridge.demo.GreetService"
	greetMethod    = "sayHello"

	hessian    = "hessian4" // what Triple calls Hessian 2
	javaString = "java.lang.String"

	serializeField protowire.Number = 1
	dataField      protowire.Number = 2
	typeField      protowire.Number = 3
)

// wrap makes a request or a response of one string: their fields are the same.
func wrap(text string) ([]byte, error) {
	data, err := encodeString(text)
	if err != nil {
		return nil, err
	}
	b := protowire.AppendString(protowire.AppendTag(nil, serializeField, protowire.BytesType), hessian)
	b = protowire.AppendBytes(protowire.AppendTag(b, dataField, protowire.BytesType), data)
	return protowire.AppendString(protowire.AppendTag(b, typeField, protowire.BytesType), javaString), nil
}

// unwrap returns the string of a request or a response.
func unwrap(b []byte) (string, error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return "", fmt.Errorf("triple message: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if number == dataField && kind == protowire.BytesType {
			data, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return "", fmt.Errorf("triple message: %w", protowire.ParseError(n))
			}
			return decodeString(data)
		}
		n = protowire.ConsumeFieldValue(number, kind, b)
		if n < 0 {
			return "", fmt.Errorf("triple message: %w", protowire.ParseError(n))
		}
		b = b[n:]
	}
	return "", errors.New("triple message without data")
}

// Hessian 2 has several forms of a string; those of less than 1,024 ASCII
// letters are enough here.
const (
	shortString  = 32   // below: the length, the text
	mediumString = 1024 // below: 0x30 + the high bits of the length, the low ones, the text
	mediumTag    = 0x30
)

func encodeString(s string) ([]byte, error) {
	switch n := len(s); {
	case n < shortString:
		return append([]byte{byte(n)}, s...), nil
	case n < mediumString:
		return append([]byte{mediumTag + byte(n>>8), byte(n)}, s...), nil
	default:
		return nil, errors.New("the text is too long")
	}
}

func decodeString(b []byte) (string, error) {
	switch {
	case len(b) > 0 && b[0] < shortString && len(b) == 1+int(b[0]):
		return string(b[1:]), nil
	case len(b) > 1 && b[0]>>2 == mediumTag>>2 && len(b) == 2+int(b[0]&3)<<8+int(b[1]):
		return string(b[2:]), nil
	default:
		return "", fmt.Errorf("no string of Hessian 2: %x", b)
	}
}

// raw hands messages through as they are; its name makes the content type that
// Triple expects.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return *b, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	*b = data
	return nil
}

// call calls sayHello of a group of the interface.
func call(ctx context.Context, conn *grpc.ClientConn, group, text string) (string, error) {
	request, err := wrap(text)
	if err != nil {
		return "", err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "tri-service-group", group)
	var response []byte
	err = conn.Invoke(ctx, "/"+greetInterface+"/"+greetMethod, &request, &response, grpc.ForceCodec(raw{}))
	if err != nil {
		return "", err
	}
	return unwrap(response)
}

// greeter answers sayHello.
type greeter interface {
	sayHello(name string) string
}

// greetService describes the interface to a gRPC server with the codec raw.
func greetService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: greetInterface,
		HandlerType: (*greeter)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: greetMethod, Handler: answer}},
	}
}

func answer(server any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // the order is gRPC's
	var request []byte
	if err := decode(&request); err != nil {
		return nil, err
	}
	name, err := unwrap(request)
	if err != nil {
		return nil, err
	}
	response, err := wrap(server.(greeter).sayHello(name))
	return &response, err
}
