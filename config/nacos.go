package config

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Nacos is a Nacos cluster.
type Nacos struct {
	Servers      []string `yaml:"servers" parts:"identity source connection loop" need:"such as [\"http://127.0.0.1:8848\"]" check:"url" doc:"The servers, each as http://host:port or https://host:port. Append the context path of the server if it is neither /nacos nor /."`
	GRPCPort     uint16   `yaml:"grpcPort" parts:"identity source connection loop" doc:"The gRPC port of all servers, for example behind a NodePort or an ingress. 0: the HTTP port of each server plus 1000."`
	ID           string   `yaml:"id" parts:"fixed identity source loop" check:"name" doc:"The id of the registry in marks, which prevents loops. Empty: the id stored in the registry, which the first bridge creates."`
	Namespace    string   `yaml:"namespace" parts:"fixed identity source connection loop" check:"id" doc:"The id of the namespace. Empty: public."`
	Username     string   `yaml:"username" doc:"The user. Requires passwordFile."`
	PasswordFile string   `yaml:"passwordFile" check:"secret" doc:"A file with the password of the user. Read again when it changes."`
	Insecure     bool     `yaml:"insecure" doc:"Allow the password to be sent over plaintext to other machines."`
	TLS          *TLS     `yaml:"tls" doc:"TLS to the cluster. Without it, the connection is plaintext."`
	ListInterval Duration `yaml:"listInterval" parts:"source loop" default:"5s" check:"interval" doc:"How often the names of all services are listed."`
	Limits       Limits   `yaml:"limits" doc:"Limits on what the cluster may send."`
}

// Settings implements Section.
func (n *Nacos) Settings() Settings {
	return Settings{
		Kind: "nacos", Title: "Nacos", ID: n.ID, Subsets: true, Limits: n.Limits, Servers: n.addresses(),
		Layout: InGroups, Namespace: n.Namespace,
	}
}

// addresses returns the host:port of each server, sorted.
func (n *Nacos) addresses() []string {
	var all []string
	for _, s := range n.Servers {
		if u, err := url.Parse(s); err == nil {
			s = u.Host
		}
		all = append(all, s)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (n *Nacos) validate(v *validator, path string) {
	v.checkPair(path, [2]string{"username", n.Username}, [2]string{"passwordFile", n.PasswordFile})
	if n.TLS == nil && !n.Insecure && n.PasswordFile != "" && !Local(n.Servers) {
		v.errorf(path+".passwordFile", "the password would cross the network in plaintext; "+
			"write https:// servers and tls: {caFile: …}, or insecure: true")
	}
	for i, s := range n.Servers {
		switch secure := strings.HasPrefix(s, "https:"); {
		case secure && n.TLS == nil:
			v.errorf(path+".tls", "missing; servers[%d] is https, and TLS is also used for its gRPC port: "+
				"write tls: {}, or tls: {caFile: …}", i)
		case !secure && n.TLS != nil:
			v.errorf(path+".servers["+strconv.Itoa(i)+"]",
				"is plaintext, but tls is set; write https://host:port, or leave tls out")
		}
	}
}
