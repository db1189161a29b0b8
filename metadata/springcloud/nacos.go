package springcloud

import (
	"fmt"

	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// NewNacos returns the codec of the format as Spring Cloud Alibaba 2023 stores it:
//
//	service <spring.application.name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8080,"weight":1,…,"metadata":{
//	  "preserved.register.source":"SPRING_CLOUD"[,"secure":"true"][,"gRPC_port":"9090"],…,"xdsb":"<mark>"}}
//
// With secure, consumers use https. Instances with another source are not of this format.
func NewNacos(o instance.Options) (*instance.Nacos, error) {
	return instance.NewNacos(instance.NacosForm{
		Form: commonForm(ownNacos, extractNacos, keySource, keySecure, keyIPv6), Scale: convert.Nacos(),
	}, o)
}

func ownNacos(i instance.Instance) map[string]string {
	m := map[string]string{keySource: sourceSpring}
	if convert.Secure(i.Ports[0].Protocol) {
		m[keySecure] = "true"
	}
	return grpcPort(i, m)
}

func extractNacos(i *instance.Instance) error {
	if s := i.Metadata[keySource]; s != sourceSpring {
		return fmt.Errorf("%s is %.40q and not %s, so Spring Cloud did not register it; read it as plain",
			keySource, s, sourceSpring)
	}
	i.Ports[0].Protocol = "http"
	if i.Metadata[keySecure] == "true" {
		i.Ports[0].Protocol = "https"
	}
	delete(i.Metadata, keySource)
	delete(i.Metadata, keySecure)
	delete(i.Metadata, keyIPv6)
	return extract(i)
}
