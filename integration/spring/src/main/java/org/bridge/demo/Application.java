package org.bridge.demo;

import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.client.RestTemplateBuilder;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.cloud.client.loadbalancer.LoadBalanced;
import org.springframework.context.annotation.Bean;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.client.RestTemplate;

/** An application that provides one page, and calls others by the names of their services. */
@SpringBootConfiguration
@EnableAutoConfiguration
@RestController
public class Application {
    @Value("${server.port:none}")
    private String port;

    /** Says which port was called. */
    @GetMapping({"/", "/hello"})
    public String hello() {
        return "hello from " + port;
    }

    @Bean
    @LoadBalanced
    RestTemplate client(RestTemplateBuilder builder) {
        return builder.build();
    }
}
