// Package gozero encodes and decodes services as go-zero's zrpc registers them in Nacos.
// It is pure: no I/O, no time, no state.
package gozero

import (
	"fmt"
	"strconv"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// Kind is the Group.Kind of every entry of this format.
const Kind = "gozero"

const keyGRPC = "gRPC_port"

// NewNacos returns the codec of the format as the registry of go-zero stores it in Nacos:
//
//	service <name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8080,"weight":1,…,"metadata":{…,"xdsb":"<mark>"}}
//
// Consumers prefer gRPC_port to the instance's own port, and ignore weight and health.
// So an instance that must not be called is not written. Consumers join host and port
// with a colon, without brackets.
func NewNacos(o instance.Options) (*instance.Nacos, error) {
	speaks := func(f convert.Family) bool { return f == convert.GRPC }
	return instance.NewNacos(instance.NacosForm{
		Form:  instance.Form{Kind: Kind, Speaks: speaks, Extract: extract, Reserved: []string{keyGRPC}},
		Scale: convert.Nacos(), IPv4: true,
	}, o)
}

// extract takes the port from the metadata.
func extract(i *instance.Instance) error {
	text := i.Metadata[keyGRPC]
	delete(i.Metadata, keyGRPC)
	if text == "" {
		return nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("%s %.20q is not a port", keyGRPC, text)
	}
	i.Ports[0].Port = uint16(port)
	return nil
}

// Format describes the format. Its clients do not use ZooKeeper.
func Format() format.Descriptor {
	return format.Descriptor{
		Name: Kind, Protocol: "grpc", Untyped: true,
		Forms: map[string]format.New{format.Nacos: format.Form(NewNacos)},
	}
}
