package config

import (
	"slices"
	"strconv"
	"strings"
)

// ZooKeeper is a ZooKeeper ensemble.
type ZooKeeper struct {
	Servers        []string `yaml:"servers" parts:"identity source connection loop" need:"such as [127.0.0.1:2181]" doc:"The servers, each as host:port. The last one may carry a chroot, as in zk2:2181/app."`
	ID             string   `yaml:"id" parts:"fixed identity source loop" check:"name" doc:"The id of the registry in marks, which prevents loops. Empty: the id stored in the registry, which the first bridge creates."`
	SessionTimeout Duration `yaml:"sessionTimeout" default:"30s" check:"session" doc:"How long the ensemble keeps the session after the connection is lost."`
	Timeout        Duration `yaml:"timeout" default:"10s" check:"timeout" doc:"How long one call may take."`
	TLS            *TLS     `yaml:"tls" doc:"TLS to the ensemble. Without it, the connection is plaintext."`
	User           string   `yaml:"user" doc:"The user for digest authentication. Requires passwordFile."`
	PasswordFile   string   `yaml:"passwordFile" check:"secret" doc:"A file with the password of the user. Read again when it changes."`
	Insecure       bool     `yaml:"insecure" doc:"Allow the password to be sent over plaintext to other machines."`
	ACL            string   `yaml:"acl" default:"open" enum:"open|read-only|private" doc:"The access to znodes that the bridge writes. open: everyone. read-only: everyone may read, only the user may write. private: only the user."`
	Lifetime       string   `yaml:"lifetime" default:"persistent" enum:"persistent|session" doc:"persistent: entries remain when the bridge stops. session: entries are ephemeral and are deleted when the session ends."`
	Limits         Limits   `yaml:"limits" doc:"Limits on what the ensemble may send."`
}

// Settings implements Section.
func (z *ZooKeeper) Settings() Settings {
	return Settings{
		Kind: "zookeeper", Title: "ZooKeeper", ID: z.ID, Subsets: true, Limits: z.Limits, Timeout: z.Timeout,
		Servers: z.addresses(), Layout: UnderRoots,
	}
}

// addresses returns the servers, each with the chroot, sorted.
func (z *ZooKeeper) addresses() []string {
	_, chroot, _ := strings.Cut(strings.Join(z.Servers, ","), "/") // after the last
	var all []string
	for _, s := range z.Servers {
		host, _, _ := strings.Cut(s, "/")
		all = append(all, strings.TrimRight(host+"/"+chroot, "/"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (z *ZooKeeper) validate(v *validator, path string) {
	for i, s := range z.Servers {
		if i == len(z.Servers)-1 {
			s, _, _ = strings.Cut(s, "/") // the chroot
		}
		v.checkText(path+".servers["+strconv.Itoa(i)+"]", s, "address")
	}
	v.checkPair(path, [2]string{"user", z.User}, [2]string{"passwordFile", z.PasswordFile})
	if z.TLS == nil && !z.Insecure && z.PasswordFile != "" && !Local(z.Servers) {
		v.errorf(path+".passwordFile", "the password would cross the network in plaintext; "+
			"write tls: {caFile: …}, or insecure: true")
	}
	if z.ACL != "open" && z.User == "" {
		v.errorf(path+".acl", "%q requires a user; write user and passwordFile, or acl: open", z.ACL)
	}
}
