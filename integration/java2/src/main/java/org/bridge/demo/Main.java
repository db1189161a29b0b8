package org.bridge.demo;

import com.alibaba.dubbo.config.ApplicationConfig;
import com.alibaba.dubbo.config.ProtocolConfig;
import com.alibaba.dubbo.config.ProviderConfig;
import com.alibaba.dubbo.config.ReferenceConfig;
import com.alibaba.dubbo.config.RegistryConfig;
import com.alibaba.dubbo.config.ServiceConfig;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.bridge.console.Console;

/**
 * A Dubbo 2 application driven by lines on its standard input, as that of Dubbo 3 in ../java:
 *
 * <pre>
 * provide ID PROTOCOL PORT [host=IP] [version=V] [group=G] [registry=URL] [weight=N] [param.NAME=VALUE]...
 *         [default.version=V] [default.group=G] [default.weight=N]
 * refer ID REGISTRY-URL [version=V] [group=G]
 * call ID TEXT
 * stop ID
 * </pre>
 *
 * Settings that begin with default are those of the provider and not of the service. It is compiled with Dubbo 2.6 and
 * with 2.7, which has the classes of 2.6 too.
 */
public final class Main {
    private static final Map<String, ServiceConfig<GreetService>> services = new ConcurrentHashMap<>();
    private static final Map<String, ReferenceConfig<GreetService>> references = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        Console.run(Main::execute);
    }

    private static String execute(String[] words) {
        switch (words[0]) {
            case "provide":
                services.put(words[1], provide(words[2], Integer.parseInt(words[3]), Settings.of(words, 4)));
                return "provides";
            case "refer":
                references.put(words[1], refer(words[2], Settings.of(words, 3)));
                return "refers";
            case "call":
                return references.get(words[1]).get().sayHello(words[2]);
            case "stop":
                return stop(words[1]);
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static String stop(String id) {
        ServiceConfig<GreetService> service = services.remove(id);
        if (service != null) {
            service.unexport();
        } else {
            references.remove(id).destroy();
        }
        return "stopped";
    }

    private static ServiceConfig<GreetService> provide(String protocol, int port, Settings settings) {
        ProtocolConfig listen = new ProtocolConfig(protocol, port);
        listen.setHost(settings.get("host", "127.0.0.1"));
        ProviderConfig defaults = new ProviderConfig();
        defaults.setVersion(settings.get("default.version"));
        defaults.setGroup(settings.get("default.group"));
        defaults.setWeight(number(settings.get("default.weight")));
        ServiceConfig<GreetService> service = new ServiceConfig<>();
        service.setApplication(application("demo-provider"));
        service.setRegistry(registry(settings.get("registry", "N/A")));
        service.setProtocol(listen);
        service.setProvider(defaults);
        service.setInterface(GreetService.class);
        service.setRef(name -> "hello " + name + " from " + port);
        service.setVersion(settings.get("version"));
        service.setGroup(settings.get("group"));
        service.setWeight(number(settings.get("weight")));
        service.setParameters(settings.startingWith("param."));
        service.export();
        return service;
    }

    private static ReferenceConfig<GreetService> refer(String registryAddress, Settings settings) {
        ReferenceConfig<GreetService> reference = new ReferenceConfig<>();
        reference.setApplication(application("demo-consumer"));
        reference.setRegistry(registry(registryAddress));
        reference.setInterface(GreetService.class);
        reference.setVersion(settings.get("version"));
        reference.setGroup(settings.get("group"));
        reference.setCheck(false);
        reference.setTimeout(15_000); // a busy machine may be slow by seconds
        reference.setRetries(0);
        reference.setInjvm(false); // providers of this JVM are called as others
        reference.get();
        return reference;
    }

    private static ApplicationConfig application(String name) {
        ApplicationConfig application = new ApplicationConfig(name);
        application.setQosEnable(false);
        return application;
    }

    private static RegistryConfig registry(String address) {
        RegistryConfig registry = new RegistryConfig(address);
        registry.setTimeout(15_000);
        return registry;
    }

    private static Integer number(String text) {
        return text == null ? null : Integer.valueOf(text);
    }

    private Main() {}
}
