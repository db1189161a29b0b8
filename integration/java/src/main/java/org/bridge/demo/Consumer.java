package org.bridge.demo;

import java.util.HashMap;
import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.rpc.model.FrameworkModel;

/** One consumer of GreetService that knows nothing but a registry. */
final class Consumer implements AutoCloseable {
    private final FrameworkModel framework = new FrameworkModel();
    private final GreetService proxy;

    Consumer(String registryAddress, Settings settings) {
        ApplicationConfig application = new ApplicationConfig("demo-consumer");
        application.setQosEnable(false);
        RegistryConfig registry = new RegistryConfig(registryAddress);
        registry.setTimeout(15_000);
        ReferenceConfig<GreetService> reference = new ReferenceConfig<>();
        reference.setInterface(GreetService.class);
        reference.setVersion(settings.get("version"));
        reference.setGroup(settings.get("group"));
        reference.setProtocol(settings.get("protocol"));
        reference.setProvidedBy(settings.get("provided-by"));
        reference.setCheck(false);
        reference.setTimeout(15_000); // a busy machine may be slow by seconds
        reference.setRetries(Integer.valueOf(settings.get("retries", "0")));
        if (settings.get("migration") != null) {
            reference.setParameters(new HashMap<>(Map.of("migration.step", settings.get("migration"))));
        }
        DubboBootstrap.newInstance(framework)
                .application(application)
                .registry(registry)
                .reference(reference)
                .start();
        proxy = reference.get();
    }

    String call(String name) {
        return proxy.sayHello(name);
    }

    @Override
    public void close() {
        framework.destroy();
    }
}
