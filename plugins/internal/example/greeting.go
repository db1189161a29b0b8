package example

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The gRPC service that the examples serve and call. It needs no generated code.
const (
	greeter = "greeter.Greeter"
	hello   = "Hello"
)

// RegisterGreeter registers the service on a gRPC server.
func RegisterGreeter(s grpc.ServiceRegistrar, at Place) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: greeter, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: hello, Handler: greet}},
	}, at)
}

func greet(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC's order
	in := new(emptypb.Empty)
	if err := decode(in); err != nil {
		return nil, err
	}
	answer := func(context.Context, any) (any, error) {
		return wrapperspb.String(server.(Place).Answer()), nil //nolint:forcetypeassert // RegisterGreeter passes a Place
	}
	if intercept == nil {
		return answer(ctx, in)
	}
	return intercept(ctx, in, &grpc.UnaryServerInfo{Server: server, FullMethod: "/" + greeter + "/" + hello}, answer)
}

// Greet calls the service.
func Greet(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	out := new(wrapperspb.StringValue)
	if err := conn.Invoke(ctx, "/"+greeter+"/"+hello, new(emptypb.Empty), out); err != nil {
		return "", err
	}
	return out.GetValue(), nil
}
