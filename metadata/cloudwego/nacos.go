package cloudwego

import (
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

// Nacos is the format of both in Nacos:
//
//	service <name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8888,"weight":10,…,"metadata":{<tags>,"xdsb":"<mark>"}}
//
// The tags are the metadata, and the mark is one more of them. A consumer that
// asks for tags takes instances with exactly these and so none of ours.
type Nacos struct{ Format }

// NewNacos returns what makes the codec of a format in Nacos.
func NewNacos(name string) func(instance.Options) (*instance.Nacos, error) {
	return func(o instance.Options) (*instance.Nacos, error) {
		return instance.NewNacos(Nacos{Format{name, o.Protocol}}, o)
	}
}

// Scale implements instance.RecordForm.
func (Nacos) Scale() convert.Scale { return convert.CloudWeGo() }

// IPv6 implements instance.RecordForm: Kitex joins host and port with a colon
// alone.
func (n Nacos) IPv6() bool { return n.Format.Name == Hertz }

// Name implements instance.RecordForm.
func (Nacos) Name(service, _ string) string { return service }

// Parse implements instance.RecordForm.
func (Nacos) Parse(service string) (string, bool) { return service, true }
