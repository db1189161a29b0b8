package dubbogo_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/config" //nolint:staticcheck // it reads registries of dubbogo.yaml
)

// opened returns the URL that dubbo-go makes from the configuration of a registry.
func opened(t testing.TB, c config.RegistryConfig) *common.URL {
	t.Helper()
	c.RegistryType = constant.RegistryTypeInterface
	if c.Timeout == "" {
		c.Timeout = "5s"
	}
	all := config.LoadRegistries(nil, map[string]*config.RegistryConfig{"shop": &c}, common.CONSUMER)
	if len(all) != 1 {
		t.Fatalf("%d registries", len(all))
	}
	all[0].Protocol = c.Protocol
	return all[0]
}

// TestURL_Address: opening a registry does not need to reach it.
func TestURL_Address(t *testing.T) {
	t.Setenv("POD_NAME", "greeter-1")
	t.Setenv("POD_NAMESPACE", "shop")
	t.Setenv("POD_IP", "10.0.0.1")
	for name, c := range map[string]config.RegistryConfig{
		"as before 3.3.0":              {Protocol: "xds", Address: "istiod.istio-system.svc.cluster.local:15010"},
		"the mesh":                     {Address: "xds://192.0.2.1:15010"},
		"by TLS":                       {Address: "xdsbridge+tls://192.0.2.1:15012", Params: map[string]string{"token": "/none", "ca": "/none"}},
		"ZooKeeper":                    {Address: "xdsbridge-zookeeper://192.0.2.1:2181", Group: "dubbo", Username: "me", Params: map[string]string{"passwordFile": "/none"}},
		"ZooKeeper by TLS":             {Address: "xdsbridge-zookeeper+tls://192.0.2.1:2281", Params: map[string]string{"ca": "/none"}},
		"its root":                     {Address: "xdsbridge-zookeeper://192.0.2.1:2181/dubbo"},
		"several of it":                {Address: "xdsbridge-zookeeper://192.0.2.1:2181", Params: map[string]string{"backup": "192.0.2.2:2181,192.0.2.3:2181"}},
		"in its address":               {Address: "xdsbridge-zookeeper://192.0.2.1:2181,192.0.2.2:2181"},
		"Nacos":                        {Address: "xdsbridge-nacos://192.0.2.1:8848", Group: "DEFAULT_GROUP", Namespace: "shop"},
		"with a state":                 {Address: "xds://192.0.2.1:15010", Params: map[string]string{"stateFile": "/none"}},
		"identity by name and address": {Address: "xds://192.0.2.1:15010", Params: map[string]string{"name": "a", "namespace": "b", "ip": "10.0.0.2"}},
		"identity by a parameter":      {Address: "xdsbridge-nacos://192.0.2.1:8848", Params: map[string]string{"identity": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := opened(t, c)
			began := time.Now()
			r, err := extension.GetRegistry(u.Protocol, u)
			if err != nil {
				t.Fatal(err)
			}
			if r.GetURL() != u || time.Since(began) > 10*time.Second { // the machine may be busy
				t.Errorf("%s after %s", r.GetURL(), time.Since(began))
			}
			r.Destroy()
		})
	}
}

// TestURL_UnreachableRegistry: the registry is closed before dubbo-go stops its servers for the second
// time, one step-timeout of 3 s after the first, and panics.
func TestURL_UnreachableRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuses := config.RegistryConfig{Address: "xdsbridge-zookeeper://127.0.0.1:1", Params: map[string]string{"identity": rand.Text()}}
		u := opened(t, refuses)
		r, err := extension.GetRegistry(u.Protocol, u)
		if err != nil {
			t.Fatal(err)
		}
		one := provider(t, 1, "")
		if err := r.Register(one); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // virtual
		began := time.Now()
		if err := r.UnRegister(one); err != nil {
			t.Error(err)
		}
		r.Destroy()
		if took := time.Since(began); took >= 3*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// TestURL_Errors: dubbo-go gets one error when it opens the registry.
func TestURL_Errors(t *testing.T) {
	t.Setenv("POD_NAME", "greeter-1")
	t.Setenv("POD_NAMESPACE", "shop")
	for name, c := range map[string]struct {
		config.RegistryConfig
		want string
	}{
		"a parameter that is none": {config.RegistryConfig{Address: "xdsbridge-zookeeper://192.0.2.1:2181", Params: map[string]string{"sesionTimeout": "1s"}}, "sesionTimeout"},
		"a time that is none":      {config.RegistryConfig{Address: "xdsbridge-zookeeper://192.0.2.1:2181", Params: map[string]string{"sessionTimeout": "soon"}}, "sessionTimeout"},
		"a timeout that is none":   {config.RegistryConfig{Address: "xds://192.0.2.1:15010", Timeout: "soon"}, "timeout"},
		"a prefix that is none":    {config.RegistryConfig{Address: "xds://192.0.2.1:15010", Params: map[string]string{"allow": "all"}}, "allow"},
		"an IP that is none":       {config.RegistryConfig{Address: "xds://192.0.2.1:15010", Params: map[string]string{"ip": "here"}}, "ip"},
		"a password in the clear":  {config.RegistryConfig{Address: "xdsbridge-nacos://192.0.2.1:8848", Password: "secret"}, "passwordFile"},
		"a group of the mesh":      {config.RegistryConfig{Address: "xds://192.0.2.1:15010", Group: "dubbo"}, "group"},
		"a root that is none":      {config.RegistryConfig{Address: "xdsbridge-zookeeper://192.0.2.1:2181/a//b"}, "root"},
	} {
		t.Run(name, func(t *testing.T) {
			u := opened(t, c.RegistryConfig)
			r, err := extension.GetRegistry(u.Protocol, u)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, %v; want an error that names %s", r, err, c.want)
			}
		})
	}
}
