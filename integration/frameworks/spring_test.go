package frameworks_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// spring runs an application of Spring Cloud at either registry, and each
// calls the other.
func (w *world) spring(t *testing.T) {
	t.Helper()
	java := harness.StartSpring(t)
	atZooKeeper, atNacos := harness.SpringAtZooKeeper(w.zookeeper), harness.SpringAtNacos(w.nacos)
	inZooKeeper, inNacos := java.Start(t, "sc-in-zk", atZooKeeper...), java.Start(t, "sc-in-nacos", atNacos...)
	springCalls(t, inNacos, "sc-in-zk", inZooKeeper)
	springCalls(t, inZooKeeper, "sc-in-nacos", inNacos)

	second := java.Start(t, "sc-in-zk", atZooKeeper...)
	springCalls(t, inNacos, "sc-in-zk", inZooKeeper, second)
	second.Stop(t)
	springCalls(t, inNacos, "sc-in-zk", inZooKeeper)
}

// springCalls waits until an application finds exactly these providers of a
// service and calls each of them.
func springCalls(t *testing.T, consumer *harness.SpringApplication, service string, providers ...*harness.SpringApplication) {
	t.Helper()
	var want []string
	answers := make(map[string]bool)
	for _, p := range providers {
		want = append(want, fmt.Sprintf("http://127.0.0.1:%d", p.Port))
		answers[p.Hello()] = true
	}
	slices.Sort(want)
	harness.Eventually(t, soon, "Spring Cloud finds "+service, func() error {
		found, err := consumer.Find(t, service)
		if err != nil {
			return err
		}
		return harness.Same(found, want)
	})
	called := make(map[string]bool)
	harness.Eventually(t, soon, "Spring Cloud calls "+service, func() error {
		answer, err := consumer.Call(t, service)
		if err != nil {
			return err
		}
		called[answer] = true
		return harness.Same(called, answers)
	})
}
