package config

import (
	"slices"
	"strconv"
	"strings"
)

// ZooKeeper is a ZooKeeper ensemble.
type ZooKeeper struct {
	Servers        []string `yaml:"servers" parts:"identity source connection loop" need:"such as [127.0.0.1:2181]" doc:"The ensemble, each as host:port; a chroot may follow the last, as in zk2:2181/app."`
	ID             string   `yaml:"id" parts:"fixed identity source loop" check:"name" doc:"The registry's id in the path of an entry, which ends loops; if it is empty the one that the registry keeps of itself, which the first bridge makes."`
	SessionTimeout Duration `yaml:"sessionTimeout" default:"30s" check:"session" doc:"How long the ensemble keeps our session when we are away."`
	Timeout        Duration `yaml:"timeout" default:"10s" check:"timeout" doc:"How long one call may take."`
	TLS            *TLS     `yaml:"tls" doc:"TLS to the ensemble; without it the connection is plaintext."`
	User           string   `yaml:"user" doc:"The user of digest authentication, with passwordFile."`
	PasswordFile   string   `yaml:"passwordFile" check:"secret" doc:"Holds the user's password; read again when it changes."`
	Insecure       bool     `yaml:"insecure" doc:"Send the password over plaintext to other machines too."`
	ACL            string   `yaml:"acl" default:"open" enum:"open|read-only|private" doc:"Who may touch what we write: everyone, our user with others reading, or our user alone."`
	Lifetime       string   `yaml:"lifetime" default:"persistent" enum:"persistent|session" doc:"Whether entries outlive the bridge or go with its session."`
	Limits         Limits   `yaml:"limits" doc:"What the ensemble may send."`
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
