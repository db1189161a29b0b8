// Package springcloud writes and reads services as Spring Cloud registers
// them in ZooKeeper and, as Spring Cloud Alibaba does, in Nacos. It is pure: no
// I/O, no time, no state.
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

// The metadata with a meaning of its own.
const (
	keySource = "preserved.register.source" // Nacos: who registered it
	keySecure = "secure"                    // Nacos: called over https
	keyStatus = "instance_status"           // ZooKeeper: UP, or hidden
	keyGRPC   = "gRPC_port"                 // another port for gRPC
	keyOldRPC = "gRPC.port"                 // the same, of grpc-spring-boot-starter up to 2.5; consumers read either
	keyIPv6   = "IPv6"                      // Nacos: another address of the same instance
)

const (
	sourceSpring = "SPRING_CLOUD"
	statusUp     = "UP"
)

// form is the part for both registries. Keys have a meaning in both, or in one of them.
// Consumers of Spring Cloud Alibaba Dubbo read keys of Dubbo.
func form(own func(instance.Instance) map[string]string, extract func(*instance.Instance) error, keys ...string) instance.Form {
	return instance.Form{
		Kind: Kind, Speaks: func(f convert.Family) bool { return f != convert.Other }, Joins: joins,
		WithDubbo: true,
		Own:       own, Extract: extract, Reserved: append(keys, keyStatus, keyGRPC),
	}
}

// joins reports whether ports are one for http, and one for gRPC beside it.
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

// extract reads the status and the port for gRPC. Consumers ignore an instance that is
// not UP.
func extract(i *instance.Instance) error {
	if s := i.Metadata[keyStatus]; s != "" && !strings.EqualFold(s, statusUp) {
		i.Health = registry.Disabled
	}
	delete(i.Metadata, keyStatus)
	first := &i.Ports[0]
	text := cmp.Or(i.Metadata[keyGRPC], i.Metadata[keyOldRPC])
	delete(i.Metadata, keyGRPC) // the old one stays for consumers that read no other
	if text == "" {
		return nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil || port == 0:
		return fmt.Errorf("%s %.20q is no port", keyGRPC, text)
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
