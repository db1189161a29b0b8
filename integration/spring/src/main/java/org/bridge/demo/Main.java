package org.bridge.demo;

import java.net.URI;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.bridge.console.Console;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.client.ServiceInstance;
import org.springframework.cloud.client.discovery.DiscoveryClient;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.web.client.RestTemplate;

/**
 * Any number of Spring Cloud applications in one JVM, driven by lines on its standard input:
 *
 * <pre>
 * start ID [PROPERTY=VALUE]...
 * find ID SERVICE
 * call ID SERVICE
 * stop ID
 * </pre>
 *
 * The properties are Spring's own. find answers with what the application's DiscoveryClient knows of a service, as
 * URIs; call with what one of them said to a load-balanced client.
 */
public final class Main {
    private static final Map<String, ConfigurableApplicationContext> applications = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        Console.run(Main::execute);
    }

    private static String execute(String[] words) {
        switch (words[0]) {
            case "start":
                String[] properties = Arrays.copyOfRange(words, 2, words.length);
                applications.put(words[1], new SpringApplicationBuilder(Application.class).properties(properties).run());
                return "started";
            case "find":
                return applications.get(words[1]).getBean(DiscoveryClient.class).getInstances(words[2]).stream()
                        .map(ServiceInstance::getUri)
                        .map(URI::toString)
                        .sorted()
                        .collect(Collectors.joining(","));
            case "call":
                return applications.get(words[1]).getBean(RestTemplate.class)
                        .getForObject("http://" + words[2] + "/hello", String.class);
            case "stop":
                applications.remove(words[1]).close();
                return "stopped";
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private Main() {}
}
