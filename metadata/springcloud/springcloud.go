// Package springcloud encodes and decodes services as Spring Cloud registers them in
// ZooKeeper, and Spring Cloud Alibaba in Nacos. It is pure: no I/O, no time, no state.
package springcloud

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Kind is the Group.Kind of every entry of this format.
const Kind = "spring-cloud"

// The keys of metadata that consumers interpret.
const (
	keySource = "preserved.register.source" // Nacos: the framework that registered the instance
	keySecure = "secure"                    // Nacos: whether it is called over https
	keyStatus = "instance_status"           // ZooKeeper: any status but UP hides the instance
	keyGRPC   = "gRPC_port"                 // another port for gRPC
	keyIPv6   = "IPv6"                      // Nacos: another address of the same instance

	// keyOldRPC is keyGRPC of grpc-spring-boot-starter up to 2.5. Consumers read either.
	keyOldRPC = "gRPC.port"
)

const (
	sourceSpring = "SPRING_CLOUD"
	statusUp     = "UP"
)

// commonForm is the part of the form that both registries share. Keys are the reserved
// keys of one registry. Consumers of Spring Cloud Alibaba Dubbo read keys of Dubbo.
func commonForm(
	own func(instance.Instance) map[string]string, extract func(*instance.Instance) error, keys ...string,
) instance.Form {
	return instance.Form{
		Kind: Kind, Speaks: func(f convert.Family) bool { return f != convert.Other }, Joins: joins,
		WithDubbo: true,
		Own:       own, Extract: extract, Reserved: append(keys, keyStatus, keyGRPC),
	}
}

// joins reports whether ports are one for HTTP and one for gRPC of the same host.
func joins(ports []instance.Port) bool {
	return len(ports) == 2 && ports[0].Host == ports[1].Host &&
		convert.FamilyOf(ports[0].Protocol) == convert.HTTP && convert.FamilyOf(ports[1].Protocol) == convert.GRPC
}

// grpcPort adds the port for gRPC to metadata.
func grpcPort(i instance.Instance, m map[string]string) map[string]string {
	if last := i.Ports[len(i.Ports)-1]; convert.FamilyOf(last.Protocol) == convert.GRPC {
		m[keyGRPC] = strconv.Itoa(int(last.Port))
	}
	return m
}

// extract takes the status and the port for gRPC from the metadata. Consumers ignore an
// instance that is not UP.
func extract(i *instance.Instance) error {
	if s := i.Metadata[keyStatus]; s != "" && !strings.EqualFold(s, statusUp) {
		i.Health = registry.Disabled
	}
	delete(i.Metadata, keyStatus)
	first := &i.Ports[0]
	text := cmp.Or(i.Metadata[keyGRPC], i.Metadata[keyOldRPC])
	delete(i.Metadata, keyGRPC) // the old key is kept for consumers that read only that
	if text == "" {
		return nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil || port == 0:
		return fmt.Errorf("%s %.20q is not a port", keyGRPC, text)
	case uint16(port) == first.Port:
		first.Protocol = "grpc"
	default:
		i.Ports = append(i.Ports, instance.Port{Protocol: "grpc", Host: first.Host, Port: uint16(port)})
	}
	return nil
}

// Format describes the format.
func Format() format.Descriptor {
	return format.Descriptor{
		Name: Kind, Root: "/services", Protocol: "http",
		Forms: map[string]format.New{
			format.ZooKeeper: format.Form(NewZooKeeper),
			format.Nacos:     format.Form(NewNacos),
		},
	}
}
