// Package formats lists the formats in which services have plain names. It is
// pure: no I/O, no time, no state.
package formats

import (
	"github.com/xds-bridge/xds-bridge/metadata/cloudwego"
	"github.com/xds-bridge/xds-bridge/metadata/gozero"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/metadata/kratos"
	"github.com/xds-bridge/xds-bridge/metadata/plain"
	"github.com/xds-bridge/xds-bridge/metadata/springcloud"
)

// Plain is a format of plain services. It has no form in a registry for which it
// makes no codec.
type Plain struct {
	Root      string // the folder in ZooKeeper where none is named
	Protocol  string // of instances that name none
	ZooKeeper func(instance.Options) (*instance.ZooKeeper, error)
	Nacos     func(instance.Options) (*instance.Nacos, error)
}

// Plains returns all of them by their kinds.
func Plains() map[string]Plain {
	return map[string]Plain{
		kratos.Kind:      {"/microservices", "grpc", kratos.NewZooKeeper, kratos.NewNacos},
		springcloud.Kind: {"/services", "http", springcloud.NewZooKeeper, springcloud.NewNacos},
		gozero.Kind:      {"", "grpc", nil, gozero.NewNacos},
		cloudwego.Hertz:  {"/", "http", cloudwego.NewZooKeeper(cloudwego.Hertz), cloudwego.NewNacos(cloudwego.Hertz)},
		cloudwego.Kitex:  {"/", "thrift", cloudwego.NewZooKeeper(cloudwego.Kitex), cloudwego.NewNacos(cloudwego.Kitex)},
		plain.Kind:       {"/plain", "tcp", plain.NewZooKeeper, plain.NewNacos},
	}
}
