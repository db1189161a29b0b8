package org.bridge.demo;

import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import org.apache.dubbo.common.URL;
import org.apache.dubbo.common.extension.Activate;
import org.apache.dubbo.registry.AddressListener;
import org.apache.dubbo.rpc.cluster.Directory;
import org.bridge.console.Console;

/** Prints every list of providers that a registry hands to a consumer of this JVM: their addresses and colors. */
@Activate
public final class AddressReporter implements AddressListener {
    @Override
    public List<URL> notify(List<URL> addresses, URL consumer, Directory directory) {
        Console.say("addresses " + addresses.stream()
                .filter(url -> !"empty".equals(url.getProtocol()))
                .map(URL::getAddress)
                .sorted()
                .collect(Collectors.joining(",")));
        Console.say("colors " + addresses.stream()
                .map(url -> url.getParameter("color"))
                .filter(Objects::nonNull)
                .sorted()
                .collect(Collectors.joining(",")));
        return addresses;
    }
}
