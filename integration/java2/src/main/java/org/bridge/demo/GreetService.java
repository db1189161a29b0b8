package org.bridge.demo;

/** The interface that providers export and consumers call. */
public interface GreetService {
    /** Answers with the name and the port of the provider that was called. */
    String sayHello(String name);
}
