package plugins_test

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// TestDubboGoWithJava: an application of dubbo-go with the plugin and one of Java
// Dubbo with its own registry call each other, by both protocols. Calls are divided by
// weight, whichever of the two has the larger one, and none fails while the providers
// are replaced one by one.
func TestDubboGoWithJava(t *testing.T) {
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
					return java.Provide(t, speaks, "host="+host, "registry="+own.java(), "weight="+strconv.Itoa(weight), "param.warmup=1")
				}
				consumers := map[string]caller{
					"dubbo-go": harness.ReferDubboGoBy(t, binary, append([]string{speaks}, ours...)...),
					"Java":     java.ReferAt(t, "consumer", own.java(), "protocol="+speaks).Load(t),
				}
				all := func(what string, do func(caller)) {
					t.Helper()
					for name, c := range consumers {
						t.Log(what, name)
						do(c)
					}
				}
				of := func(ports ...int) func(caller) { return func(c caller) { called(t, c, ports...) } }
				oneInGo, ends := inGo(100)
				all("dubbo-go's provider is called by", of(oneInGo))
				oneInJava := inJava(300)
				all("Java's larger one too", func(c caller) { divided(t, c, oneInJava, 75) })
				twoInGo, _ := inGo(900)
				java.StopProvider(t, oneInJava)
				all("Java's is replaced by a larger one of dubbo-go, called by", func(c caller) { divided(t, c, twoInGo, 90) })
				twoInJava := inJava(300)
				ends.Signal(t, syscall.SIGTERM)
				all("dubbo-go's is replaced by a smaller one of Java, called by", func(c caller) { divided(t, c, twoInGo, 75) })
				if code := ends.Wait(t, drained); code != 0 {
					t.Errorf("the provider ended with %d", code)
				}
				all("both are called by", of(twoInGo, twoInJava))
				for name, c := range consumers {
					noneFailed(t, name, c)
				}
			})
		}
	}
}
