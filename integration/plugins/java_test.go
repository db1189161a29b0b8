package plugins_test

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestDubboGo_Java: an application of dubbo-go with the plugin and one of Java
// Dubbo with its own registry call each other, by both protocols. Calls are divided by
// weight, whichever of the two has the larger one, and none fails by triple while
// providers of both end and are replaced.
func TestDubboGo_Java(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	binary := buildDubboGo(t)
	for name, start := range places() {
		for _, speaks := range []string{"tri", "dubbo"} {
			t.Run(name+" "+speaks, func(t *testing.T) {
				t.Parallel()
				own, ours := start(t)
				java, host := harness.StartDubbo(t), harness.OwnIP(t)
				inGo := func(weight int) (port int, p *harness.Process) {
					return dubboGo{binary, speaks, host, "@" + strconv.Itoa(weight)}.provide(t, ours)
				}
				inJava := func(weight int) (port int) {
					return java.Provide(t, speaks, "host="+host, "registry="+own.java(), "register=all", "weight="+strconv.Itoa(weight), "param.warmup=1", "drain=3000")
				}
				// With no retries, Java fails what is in flight at a provider that goes, be it one of Java.
				consumers := map[string]caller{
					"dubbo-go": harness.ReferDubboGoBy(t, binary, append([]string{speaks}, ours...)...),
					"Java":     java.ReferAt(t, "consumer", own.java(), "protocol="+speaks, "migration=FORCE_INTERFACE", "retries=2").Load(t),
				}
				all := func(what string, do func(caller)) {
					t.Helper()
					for name, c := range consumers {
						t.Log(what, name)
						do(c)
						noneFailed(t, name, c)
					}
				}
				of := func(ports ...int) func(caller) { return func(c caller) { called(t, c, ports...) } }
				mostly := func(port int) func(caller) { return func(c caller) { divided(t, c, port, 75) } }
				oneInGo, ends := inGo(100)
				all("one of dubbo-go is called by", of(oneInGo))
				oneInJava := inJava(300)
				all("a larger one of Java is called by", mostly(oneInJava))
				twoInGo, _ := inGo(1200)
				all("a still larger one of dubbo-go is called by", mostly(twoInGo))
				if speaks == "tri" { // where a provider of dubbo goes, dubbo-go may wait for an answer for ever, see docs/plugins/dubbogo.md
					java.StopProvider(t, oneInJava)
					all("Java's ends, called by", of(oneInGo, twoInGo))
					twoInJava := inJava(1200)
					all("another one replaces it, called by", of(oneInGo, twoInGo, twoInJava))
					ends.Signal(t, syscall.SIGTERM)
					all("the first one of dubbo-go ends, called by", of(twoInGo, twoInJava))
					if code := ends.Wait(t, drained); code != 0 {
						t.Errorf("the provider ended with %d", code)
					}
					all("once it has ended, called by", of(twoInGo, twoInJava))
				}
			})
		}
	}
}
