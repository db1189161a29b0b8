package harness

import (
	"fmt"
	"strings"
	"testing"
)

// Spring is a JVM with real Spring Cloud in it, which can be any number of
// applications at the same time.
type Spring struct {
	*java

	started int
}

// StartSpring starts a JVM without applications.
func StartSpring(t testing.TB) *Spring {
	t.Helper()
	return &Spring{java: startJava(t, "spring", []string{
		"-Xmx128m", "-Dorg.springframework.boot.logging.LoggingSystem=none", // it belongs to the JVM, not to an application
		"-Dnacos.logging.default.config.enabled=false",
	}, func(string, string) {})}
}

// The properties by which an application of Spring Cloud knows one registry
// and no other.

// SpringAtZooKeeper knows a ZooKeeper.
func SpringAtZooKeeper(address string) []string {
	return []string{
		"spring.cloud.nacos.discovery.enabled=false",
		"spring.cloud.zookeeper.connect-string=" + address,
		"spring.cloud.zookeeper.discovery.instance-host=127.0.0.1",
	}
}

// SpringAtNacos knows a Nacos.
func SpringAtNacos(server *Nacos) []string {
	return []string{
		"spring.cloud.zookeeper.enabled=false",
		"spring.cloud.nacos.discovery.server-addr=" + strings.TrimPrefix(server.URL, "http://"),
		"spring.cloud.nacos.discovery.namespace=" + server.Namespace,
		"spring.cloud.nacos.discovery.ip=127.0.0.1",
	}
}

// SpringApplication is an application of Spring Cloud.
type SpringApplication struct {
	spring *Spring
	id     string
	Port   int
}

// Start starts an application that provides GET / and /hello under its name and
// calls others by theirs. It looks at its registry for every call.
func (s *Spring) Start(t testing.TB, name string, properties ...string) *SpringApplication {
	t.Helper()
	s.started++
	a := &SpringApplication{s, fmt.Sprintf("%s-%d", name, s.started), FreePort(t)}
	_, err := s.command(t, append([]string{
		"start", a.id, "spring.application.name=" + name, fmt.Sprintf("server.port=%d", a.Port), "server.tomcat.threads.max=4",
		"spring.main.banner-mode=off", "spring.cloud.loadbalancer.cache.enabled=false",
	}, properties...)...)
	must(t, err)
	return a
}

// Stop ends the application as Spring does, which removes itself from its
// registry.
func (a *SpringApplication) Stop(t testing.TB) {
	t.Helper()
	_, err := a.spring.command(t, "stop", a.id)
	must(t, err)
}

// Find returns the addresses that the application's DiscoveryClient has of a
// service.
func (a *SpringApplication) Find(t testing.TB, service string) ([]string, error) {
	t.Helper()
	answer, err := a.spring.command(t, "find", a.id, service)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(answer, func(r rune) bool { return r == ',' }), nil
}

// Call calls a service by the application's load-balanced client and returns
// what the provider said.
func (a *SpringApplication) Call(t testing.TB, service string) (string, error) {
	t.Helper()
	return a.spring.command(t, "call", a.id, service)
}

// Hello is what the application answers.
func (a *SpringApplication) Hello() string { return fmt.Sprintf("hello from %d", a.Port) }
