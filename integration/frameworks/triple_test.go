package frameworks_test

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// sayHello calls Java Dubbo's service over Triple, which is gRPC whose messages
// hold what Java serialized: TripleRequestWrapper{serializeType = 1, args = 2,
// argTypes = 3}, TripleResponseWrapper{serializeType = 1, data = 2, type = 3}.
func sayHello(ctx context.Context, conn *grpc.ClientConn, name string) (string, error) {
	var request, answer []byte
	for field, text := range []string{1: "hessian2", 2: hessian(name), 3: "java.lang.String"} {
		if text != "" {
			request = protowire.AppendString(protowire.AppendTag(request, protowire.Number(field), protowire.BytesType), text)
		}
	}
	if err := conn.Invoke(ctx, "/"+harness.DubboInterface+"/sayHello", request, &answer, grpc.ForceCodec(raw{})); err != nil {
		return "", err
	}
	for len(answer) > 0 {
		field, kind, n := protowire.ConsumeField(answer)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		if field == 2 && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(answer)
			data, _ := protowire.ConsumeBytes(answer[tag:])
			return unhessian(data)
		}
		answer = answer[n:]
	}
	return "", errors.New("an answer without data")
}

// shortText is the longest text that Hessian writes behind one byte of length.
const shortText = 31

func hessian(text string) string { return string(rune(len(text))) + text }

func unhessian(data []byte) (string, error) {
	if len(data) == 0 || int(data[0]) != len(data)-1 || data[0] > shortText {
		return "", errors.New("no short text of Hessian")
	}
	return string(data[1:]), nil
}

// raw hands messages through as bytes.
type raw struct{}

// Marshal implements encoding.Codec.
func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

// Unmarshal implements encoding.Codec.
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// Name implements encoding.Codec.
func (raw) Name() string { return "proto" }
