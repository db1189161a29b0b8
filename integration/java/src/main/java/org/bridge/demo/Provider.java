package org.bridge.demo;

import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.qos.command.impl.Offline;
import org.apache.dubbo.rpc.model.FrameworkModel;

/** One provider of GreetService on one port, in a Dubbo framework of its own. */
final class Provider implements AutoCloseable {
    private final FrameworkModel framework = new FrameworkModel();
    private final String drain; // milliseconds between leaving the registry and the end

    Provider(String protocol, int port, Settings settings) {
        drain = settings.get("drain", "0");
        ApplicationConfig application = new ApplicationConfig(settings.get("app", "demo-provider"));
        application.setQosEnable(false);
        application.setRegisterMode(settings.get("register", "interface"));
        application.setMetadataType(settings.get("metadata", "local"));
        RegistryConfig registry = new RegistryConfig(settings.get("registry", "N/A"));
        ProtocolConfig listen = new ProtocolConfig(protocol, port);
        listen.setHost(settings.get("host", "127.0.0.1"));
        ServiceConfig<GreetService> service = new ServiceConfig<>();
        service.setInterface(GreetService.class);
        service.setRef(name -> "hello " + name + " from " + port);
        service.setVersion(settings.get("version"));
        service.setGroup(settings.get("group"));
        service.setWeight(settings.get("weight") == null ? null : Integer.valueOf(settings.get("weight")));
        service.setTag(settings.get("tag"));
        service.setParameters(settings.startingWith("param."));
        DubboBootstrap.newInstance(framework)
                .application(application)
                .registry(registry)
                .protocol(listen)
                .service(service)
                .start();
    }

    @Override
    public void close() throws InterruptedException {
        // Dubbo itself accepts no more calls at once, whether consumers have left or not.
        new Offline(framework).offline(".*");
        Thread.sleep(Long.parseLong(drain));
        framework.destroy();
    }
}
